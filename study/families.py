"""The tables of connections in docs/connection_details.md, made from the registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from rskip.connections import (
    HOST_NEEDS,
    ConnectionSpec,
    Option,
    Place,
    build_connection,
    build_stack_connection,
    find_family,
    list_connections,
    works_on,
)
from rskip.formulas.description import example
from rskip.formulas.parameters import MOST
from rskip.formulas.registry import MODELS
from rskip.records.tables import markdown_table
from rskip.settings.errors import SettingError

_PLACES = [Place("encoder", branch, number, 12, 1, 6) for number, branch in ((1, "self_attn"), (2, "ffn"))]
_SIZES = (64, 128, 192)
_CLOSES = re.compile(r"[;,] (?:and )?one normalisation closes the stack$")


def families_table() -> str:
    """Each family, and its options that change the formula."""
    headings = ("spec", "y", "needs", "images", "parameters", "source")
    return markdown_table(headings, (row for family in list_connections() for row in _rows(example(family)))) + "\n"


def _rows(first: ConnectionSpec) -> Iterator[tuple[str, ...]]:
    family, shown = find_family(first.family), set[str]()
    for spec in (first, *_variants(first)):
        y = family.formula_of(spec.settings)
        if y not in shown:
            images = "yes" if works_on(spec, 1) else ""
            source = "" if shown else family.source
            yield f"`{spec}`", _CLOSES.sub(" †", y), ", ".join(family.needs), images, _parameters(spec), source
            shown.add(y)


def _variants(spec: ConnectionSpec) -> Iterator[ConnectionSpec]:
    """The spec without a normalisation, and with each word of each option."""
    family = find_family(spec.family)
    for norm in dict.fromkeys((spec.norm, None) if None in family.norms else (spec.norm,)):
        yield ConnectionSpec(spec.family, spec.factor, norm)
        for name, option in family.options.items():
            for word in option.words or ((False, True) if option.kind is bool else ()):
                try:
                    yield ConnectionSpec(spec.family, spec.factor, norm, ((name, word),))
                except SettingError:
                    continue  # only with another option


def _parameters(spec: ConnectionSpec) -> str:
    """The number of parameters of a layer's blocks, and of what opens and closes their stack, as polynomials in h."""

    def count(build: Callable[[int], nn.Module]) -> str:
        with torch.device("meta"):
            return _polynomial([sum(each.numel() for each in build(size).parameters()) for size in _SIZES])

    dim = -1 if works_on(spec, -1) else 1
    of_blocks = [
        count(partial(build_connection, spec, feature_dim=dim, place=place, host_supplies=HOST_NEEDS))
        for place in _PLACES
    ]
    of_stack = count(partial(build_stack_connection, spec))
    return " or ".join(dict.fromkeys(of_blocks)) + (f"; per stack {of_stack}" if of_stack != "0" else "")


def _polynomial(counts: list[int]) -> str:
    """The polynomial ah² + bh + c that has these values at `_SIZES`, which are h, 2h and 3h."""
    h = _SIZES[0]
    a = (counts[0] - 2 * counts[1] + counts[2]) // (2 * h * h)
    b = (counts[1] - counts[0]) // h - 3 * h * a
    c = counts[0] - a * h * h - b * h
    terms = [f"{'' if each == 1 and power else each}{power}" for each, power in ((a, "h²"), (b, "h"), (c, "")) if each]
    return " + ".join(terms) or "0"


def options_table() -> str:
    """What a spec of each family can say; families that can say the same share a row."""
    families: dict[tuple[str, str, str], list[str]] = {}
    for family in list_connections():
        default: dict[str | None, str] = {family.default_norm: " (default)"} if family.default_norm else {}
        norms = ", ".join((norm or "none") + default.get(norm, "") for norm in family.norms)
        options = "; ".join(f"`{name}` ({_values(each)}): {each.meaning}" for name, each in family.options.items())
        families.setdefault((family.factor.values if family.factor else "", norms, options), []).append(family.name)
    headings = ("family", "λ", "norm", "options (default; other values): meaning")
    return markdown_table(headings, ((", ".join(names), *said) for said, names in families.items())) + "\n"


def _values(option: Option) -> str:
    """The default, and other values if they are words or have close bounds."""
    default = str(option.default).lower()
    others = ", ".join(word for word in option.words if word != default)
    if not option.words and option.kind is not bool and option.bounds.le < MOST:
        others = option.values.partition(" from ")[2]
    return f"{default}; {others}" if others else default


def models_table() -> str:
    """Each model and its connection."""
    return markdown_table(("model", "spec"), ((model, f"`{spec}`") for model, spec in MODELS.items())) + "\n"


TABLES = {"families": families_table, "options_of_families": options_table, "models": models_table}
