"""Which simpler connection a trained one becomes. It needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rskip.formulas.terms import Coefficient, F, Formula, Gate, Norm, Number, Rest, Settings, Sum, X

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
        parts = _parts(connection.formula)
        assert parts is not None, "another connection"
        of_x, of_f, _ = parts
        factor = connection.coefficient(of_f) / connection.coefficient(of_x)
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
    parts = _parts(formula)
    if parts is None or formula.becomes or formula.inner_norms or formula.scales_heads:
        return None
    of_x, of_f, norm = parts
    if isinstance(formula.y, Norm):
        if closed or not _is_one_number(of_x) or (norm.kind not in _ANY_SCALE and (of_x, of_f) != (1, 1)):
            return None
        return f"1xskip+{norm.kind}", norm.name
    return (f"prenorm+{norm.kind}", norm.name) if closed and of_x == 1 else None


def _parts(formula: Formula) -> tuple[Coefficient, Coefficient, Norm] | None:
    """α, β and the norm of norm(αx + βf), f = F(x), or of αx + βf, f = F(norm(x)); None: another form."""
    norm = formula.y if isinstance(formula.y, Norm) else formula.reads
    total = formula.y.of if isinstance(formula.y, Norm) else formula.y
    if not isinstance(norm, Norm) or not isinstance(total, Sum) or (norm == formula.y) != (formula.reads == X):
        return None
    if norm == formula.reads and norm.of != X:
        return None
    found = {part: coefficient for coefficient, part in total.parts}
    gated = any(isinstance(each, (Gate, Rest)) for each in found.values())
    if found.keys() != {X, F} or len(total.parts) != 2 or gated:
        return None
    return found[X], found[F], norm


def _is_one_number(coefficient: Coefficient) -> bool:
    return isinstance(coefficient, (int, float, Number)) or getattr(coefficient, "size", None) == 1
