"""Describes connections in words: an example of each family, and the facts about a spec."""

from __future__ import annotations

from collections.abc import Iterator

from rskip.formulas.parameters import documented
from rskip.formulas.registry import Family, find_family
from rskip.formulas.spec import ConnectionSpec, works_on

# what a family needs in addition to x and f, by the words of `Family.needs`
_NEEDS = {
    "place": "the block position",
    "branch": "norms or scales inside the branch",
    "profile": "a pass over data before training",
    "streams": "several tensors from block to block",
    "history": "the outputs of earlier layers",
}
_INPUTS = (("sequences", -1), ("feature maps", 1))  # with the dimension of their features


def example(family: Family) -> ConnectionSpec:
    """A spec of the family: λ = 2, layer normalisation and the default options, where it takes them."""
    return ConnectionSpec(family.name, 2 if family.factor else None, family.settings.get("norm"))


def facts(spec: ConnectionSpec) -> Iterator[tuple[str, str]]:
    """The facts about a connection, as pairs of a name and its value."""
    family = find_family(spec.family)
    y = family.formula_of(spec.settings)
    if spec.options and not family.is_formula:  # it comes from the class's docstring, as the details do
        y += " (this line and the details: with the default options)"
    yield "y", y
    paragraphs = (" ".join(each.split()) for each in documented(family.connection).split("\n\n")[1:])
    if details := " ".join(each for each in paragraphs if not each.startswith((":param", "Members:"))):
        yield "details", details.partition(" Members:")[0]
    if family.factor is not None:
        yield "λ", f"{spec.factor} (possible: {family.factor.values})"
    if family.norms != (None,):
        norms = " or ".join(norm or "none" for norm in family.norms)
        yield "normalisation", f"{spec.norm or 'none'} (possible: {norms})"
    for name, option in family.options.items():
        value = spec.settings[name]
        meaning = f": {option.meaning}" if option.meaning else ""
        yield f"option {name}", f"{str(value).lower()} (possible: {option.values}){meaning}"
    yield "works on", " and ".join(name for name, dim in _INPUTS if works_on(spec, dim))
    yield "needs", ", ".join(_NEEDS[need] for need in family.needs) or "only x and f"
    if spec.fold is not None:
        yield "folds into", f"{spec.fold.connection}, after training"
    yield "source", family.source
    if family.paper.title != family.source:
        yield "paper", ", ".join(filter(None, (family.paper.title, family.paper.url)))
