"""ReZero: y = x + αf, with one learned α per block, which starts at 0 (Bachlechner et al. 2020)."""

from rskip.connections import F, Formula, Learned, X, register_connection


@register_connection("rezero", source="Bachlechner et al. 2020, ReZero is all you need")
class ReZero(Formula):
    """`rezero` starts α at 0; `rezero:init=0.5` at 0.5."""

    def __init__(self, *, init: float = 0) -> None:
        self.y = X + Learned("alpha", init, size=1, symbol="α") * F
