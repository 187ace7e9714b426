"""Which simpler connection a trained one becomes. It needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rskip.formulas.kernels import kernel_form
from rskip.formulas.terms import Formula, Number, Settings
from rskip.kernel_forms import NormalisedSum

if TYPE_CHECKING:
    from rskip.formulas.registry import Family

_ANY_SCALE = ("ln", "rms", "gn1")  # not bn, whose running statistics depend on the scale


@dataclass(frozen=True)
class Fold:
    """A simpler connection that computes the same function of x and f as a trained one, up to the norm's eps.

    :param connection: spec of the simpler connection. It receives `factor_of` times f.
    :param renamed: names of members that differ, trained name to simpler name.
    """

    connection: str
    renamed: Mapping[str, str] = field(default_factory=dict)

    def factor_of(self, connection: Any) -> Any:
        """The factor for the last linear map of a trained connection's branch: one number, or one per feature (C)."""
        stated = connection.kernel_form()
        factor = stated.branch_scale / stated.scale
        return factor if isinstance(factor, float) or factor.dim() else factor.item()


def fold_of(family: Family, settings: Settings) -> Fold | None:
    """norm(αx + βf) is norm(x + (β/α)f), and x + γF(norm(x)) is a pre-norm block, whose branch's last map takes γ.

    :returns: None if the formula has another form, or one that depends on the position.
    """
    found = {_fold(formula, closed=family.closes(settings)) for formula in family.formulas(settings)}
    only = found.pop() if len(found) == 1 else None
    if only is None:
        return None
    connection, norm = only
    return Fold(connection, {} if norm == "norm" else {norm: "norm"})


def _fold(formula: Formula, *, closed: bool) -> tuple[str, str] | None:
    """The simpler connection, and the name of the norm that it takes over."""
    stated = kernel_form(formula, lambda term: term)
    if not isinstance(stated, NormalisedSum) or formula.inner_norms or formula.scales_heads:
        return None
    if stated.shares or stated.added or stated.output_norm or stated.input_scale != 1:
        return None
    of_x, of_f, reads, norms = stated.scale, stated.branch_scale, stated.branch_norm, stated.norms
    if reads is not None:
        return (f"prenorm+{reads.kind}", reads.name) if closed and not norms and of_x == 1 else None
    is_one_number = isinstance(of_x, (int, float, Number)) or of_x.size == 1
    if closed or len(norms) != 1 or not is_one_number:
        return None
    norm = norms[0]
    return (f"1xskip+{norm.kind}", norm.name) if norm.kind in _ANY_SCALE or (of_x, of_f) == (1, 1) else None
