"""All connections: all specs of all families, with modules built for each block position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torch import nn

from rskip.connections import (
    HOST_NEEDS,
    Family,
    Place,
    build_connection,
    build_stack_connection,
    list_connections,
    parse_connection,
    works_on,
)
from rskip.formulas import registry

FEATURES = 32
PLACES = [
    Place("encoder", "self_attn", 1, 6, 1, 3, 3),
    Place("encoder", "ffn", 4, 6, 2, 3, 3),
    Place("decoder", "encoder_attn", 2, 9, 1, 3, 3),
    Place("decoder", "ffn", 9, 9, 3, 3, 3),
]
FAMILIES = [family.name for family in list_connections()]
OWN_FAMILIES = [family for family in list_connections() if family.connection.__module__.startswith("rskip.")]


def specs_of(family: Family) -> Iterator[str]:
    """The family's valid specs, with each norm and with each value of each option."""
    factor = "" if family.factor is None else "2"
    norms = [f"+{norm}" if norm else "" for norm in family.norms]
    options = [""]
    for name, option in family.options.items():
        others = (
            [word for word in option.words if word != option.default] if option.kind is str
            else [str(not option.default).lower()] if option.kind is bool
            else [2 if option.kind is int else 0.5]
        )  # fmt: skip
        options += [f":{name}={other}" for other in others]
    for norm in norms:
        for option in options:
            try:
                yield str(parse_connection(f"{factor}{family.name}{norm}{option}"))
            except ValueError:
                assert option  # only specs with options may be invalid


def families_of(specs: Iterable[str]) -> set[str]:
    return {parse_connection(spec).family for spec in specs}


def with_every_family(specs: list[str], families: Iterable[Family] = OWN_FAMILIES) -> list[str]:
    """The specs, and one spec of each family that they lack."""
    listed = families_of(specs)
    return [*specs, *(next(specs_of(family)) for family in families if family.name not in listed)]


def specs_on_text(family: str) -> list[str]:
    """The family's specs for text, each once, with `ln` or without a norm: `rms` differs by the bias only."""
    specs = dict.fromkeys(specs_of(registry.find_family(family)))
    return [spec for spec in specs if parse_connection(spec).norm in ("ln", None)]


def built_for(spec: str, *, eps: float | None = None) -> list[Callable[[], nn.Module]]:
    """Builders of the spec's connections at each block position, for text and images, and of its stack connection."""
    made: list[Callable[[], nn.Module]] = []
    for feature_dim in (-1, 1):
        if not works_on(spec, feature_dim):
            continue
        for place in PLACES if registry.find_family(parse_connection(spec).family).needs_place else PLACES[:1]:
            made.append(
                lambda place=place, feature_dim=feature_dim: build_connection(
                    spec, FEATURES, feature_dim=feature_dim, place=place, host_supplies=HOST_NEEDS, eps=eps
                )
            )
    return [*made, lambda: build_stack_connection(spec, FEATURES, eps=eps)]
