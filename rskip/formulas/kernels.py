"""The forms of formulas that the compiled kernels compute (`rskip.kernel_forms`). It needs no PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rskip.formulas.terms import F, Formula, Gate, Map, Mixture, Norm, Number, Rest, Sum, Term, X
from rskip.kernel_forms import GatedSum, NormalisedSum

ValueOf = Callable[[Any], Any]  # a number of a coefficient, or the module or the arrays of a member


def kernel_form(formula: Formula, value_of: ValueOf) -> NormalisedSum | GatedSum | None:
    """The formula with its values, for the kernels; None if they can't compute it."""
    if formula.becomes:
        return None
    reads, input_scale = formula.reads, 1.0
    if isinstance(reads, Sum) and len(reads.parts) == 1 and isinstance(reads.parts[0][0], (float, Number)):
        input_scale, reads = value_of(reads.parts[0][0]), reads.parts[0][1]
    if reads != X and not (isinstance(reads, Norm) and reads.of == X):
        return None
    if reads == X and input_scale != 1:
        return None
    branch_norm = None if reads == X else value_of(reads)
    gated = _gated(formula.y, value_of)
    if gated is not None:
        return None if input_scale != 1 else GatedSum(branch_norm=branch_norm, **gated)
    summed = _summed(formula.y, value_of)
    return None if summed is None else NormalisedSum(branch_norm=branch_norm, input_scale=input_scale, **summed)


def _gated(y: Term, value_of: ValueOf) -> dict[str, Any] | None:
    """αx + βf + γ norm(x + f), or T ⊙ f + (1-T) ⊙ x, or f + (1-T) ⊙ x, for gates α, β, γ and T."""
    found = _coefficients(y)
    of_x, of_f = found.get(X), found.get(F)
    if isinstance(of_x, Rest) and len(of_x.gates) == 1 and len(found) == 2:
        (gate,) = of_x.gates
        forms: dict[Any, Literal["highway", "shortcut"]] = {gate: "highway", 1: "shortcut"}
        form = forms.get(of_f)
        return None if form is None else {"form": form, "over": _over(gate), "alpha": value_of(gate)}
    if not (isinstance(of_x, Gate) and isinstance(of_f, Gate) and _kind(of_x) == _kind(of_f)):
        return None
    given = {"form": "scaling", "over": _over(of_x), "alpha": value_of(of_x), "beta": value_of(of_f)}
    others = [(coefficient, part) for part, coefficient in found.items() if part not in (X, F)]
    if not others:
        return given
    (gamma, norm), *more = others
    if more or not isinstance(norm, Norm) or norm.of != X + F:
        return None
    if _kind(gamma) != _kind(of_x) if isinstance(gamma, Gate) else gamma != Rest((of_x, of_f)):
        return None
    return {**given, "norm": value_of(norm), "gamma": value_of(gamma) if isinstance(gamma, Gate) else None}


def _kind(gate: Gate) -> tuple[Any, ...]:
    """What gates of one sum share: what they read, and how many factors they are."""
    return gate.over, gate.scalar


def _over(gate: Gate) -> Literal["x", "both"]:
    return "x" if gate.over == (X,) else "both"


def _summed(y: Term, value_of: ValueOf) -> dict[str, Any] | None:
    """The members of `NormalisedSum`, apart from those of the branch's input."""
    if isinstance(y, Mixture):
        last = _summed(y.of[-1], value_of)
        return None if last is None or tuple(_chain(y.of[-1])) != y.of else {**last, "shares": value_of(y)}
    norms, scales = list(_chain(y)), []
    base = norms[0].of if norms else y
    for norm in norms[1:]:
        found = _coefficients(norm.of)
        scales.append(found.pop(X, 0))
        if list(found.values()) != [1]:
            return None
    parts = _coefficients(base)
    scale = parts.pop(X, 0)
    if any(each != scale for each in scales):
        return None
    maps = (part for part in parts if isinstance(part, Map))
    added = next((part for part in maps if isinstance(part.of, Map) and part.of.of == X), None)
    if added is not None and (norms or scale != 1 or parts.pop(added) != 1):
        return None
    (branch, branch_scale), *more = parts.items() or [(None, 1)]
    if more or not (branch == F or isinstance(branch, Norm) and branch.of == F):
        return None
    if any(isinstance(each, (Gate, Rest)) for each in (scale, branch_scale)):
        return None
    return {
        "norms": tuple(map(value_of, norms)),
        "scale": value_of(scale),
        "branch_scale": value_of(branch_scale),
        "output_norm": None if branch == F else value_of(branch),
        "added": None if added is None else (value_of(added.of), value_of(added)),
    }


def _chain(term: Term) -> list[Norm]:
    """The norms of norm_n(... + norm_1(...)) over sums, from norm_1 to norm_n."""
    if not isinstance(term, Norm) or term.of == F:
        return []
    inner = [part for part in _coefficients(term.of) if isinstance(part, Norm) and part.of != F]
    return [*(_chain(inner[0]) if inner else []), term]


def _coefficients(term: Term) -> dict[Term, Any]:
    """The parts of a sum and their coefficients. Empty if a part is repeated: no kernel adds it twice."""
    parts = term.parts if isinstance(term, Sum) else ((1, term),)
    found = {part: coefficient for coefficient, part in parts}
    return found if len(found) == len(parts) else {}
