"""Builds the modules that specs name."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from typing import Any

from rskip.connections.connection import HOST_NEEDS, Connection, HostNeed, StackConnection
from rskip.connections.formula import FormulaStack, connection_of
from rskip.connections.norms import check_features, set_eps
from rskip.formulas import ConnectionSpec, Place, StackFormula, find_family, list_connections, parse_connection
from rskip.formulas.spec import check_connection, wrong
from rskip.settings.errors import SettingError, did_you_mean

_IN_WORDS: dict[HostNeed, str] = {
    "inner_norms": "normalise inside the branch (connection.inner_norms)",
    "scales_heads": "scale the branch's heads (connection.scales_heads)",
    "splits_inputs": "read attention's keys and values from other inputs (connection.key_value_inputs)",
    "branch_gain": "scale the branch's initial weights (connection.branch_gain)",
    "profile": "set initial values with a pass over data (admin_profiling)",
    "stack": "open and close its stack (build_stack_connection)",
}


def build_connection(
    spec: str | ConnectionSpec,
    features: int,
    *,
    feature_dim: int = -1,
    place: Place | None = None,
    host_supplies: HostNeed | Collection[HostNeed] = (),
    eps: float | None = None,
) -> Connection:
    """Builds the connection that `spec` names.

    :param spec: connection string, such as `2rskip+ln`, or a ConnectionSpec.
    :param features: number of features C of x and f.
    :param feature_dim: dimension of the features: -1 for sequences such as text (B, T, C), 1 for feature maps of
        images (N, C, H, W).
    :param place: the block position, for families whose `needs_place` is true and for mhc:start=home.
    :param host_supplies: those of the connection's `host_needs` that the model supplies, out of HOST_NEEDS. A
        UserWarning names the others. Pass HOST_NEEDS if nothing is trained, as in an analysis.
    :param eps: value that every normalisation inside adds to the variance; None: 1e-5, or the choice of your own class.
    :raises SettingError: named `connection`: the spec is not valid, `check_connection` refuses it, or the family needs
        `place` and got None.
    """
    spec = parse_connection(spec)
    check_features(features, feature_dim)
    check_connection(spec, feature_dim)
    family = find_family(spec.family)
    settings: dict[str, Any] = spec.settings
    if family.needs_place and place is None:
        expected = f"a block position, which {family.name} depends on"
        example = 'Place("encoder", "ffn", sublayer=2, sublayers=12, layer=1, layers=6, other_layers=6)'
        raise wrong(str(spec), expected, advice=f"pass place={example}")
    if family.takes_place:
        settings["place"] = place
    connection: Connection
    if family.is_formula:
        connection = connection_of(family.connection(**settings), features, feature_dim)
    else:
        connection = family.connection(features, feature_dim=feature_dim, **settings)
    connection.spec = str(spec)
    if eps is not None:
        set_eps(connection, eps)
    supplied = read_supplies(host_supplies)
    if missing := [need for need in connection.host_needs if need not in supplied]:
        advice = f"do so and pass host_supplies={missing}, or choose another connection"
        warnings.warn(f"connection {spec} needs its model to {described_needs(missing)}: {advice}", stacklevel=2)
    return connection


def read_supplies(host_supplies: HostNeed | Collection[HostNeed]) -> Collection[HostNeed]:
    """The needs that `host_supplies` names.

    :raises SettingError: it is not one of HOST_NEEDS or a list of them.
    """
    needs = (host_supplies,) if isinstance(host_supplies, str) else host_supplies
    for need in needs:
        if need not in HOST_NEEDS:
            expected = f"a list of any of {', '.join(HOST_NEEDS)}{did_you_mean(need, HOST_NEEDS)}"
            raise SettingError.of_value("host_supplies", need, expected)
    return needs


def described_needs(needs: Iterable[HostNeed]) -> str:
    """What a model must do to meet these `host_needs`, as words for a message."""
    return " and to ".join(_IN_WORDS[need] for need in needs)


def build_stack_connection(spec: str | ConnectionSpec, features: int, *, eps: float | None = None) -> StackConnection:
    """Builds the module that opens and closes a stack of `spec`'s blocks, on sequences.

    The arguments are those of `build_connection`.

    :raises SettingError: named `connection`: the spec is not valid.
    """
    spec = parse_connection(spec)
    check_features(features, -1)
    stack, settings = find_family(spec.family).connection.stack, spec.settings
    built: StackConnection
    if stack is None:
        built = StackConnection(features)
    elif issubclass(stack, StackFormula):
        built = FormulaStack(features, stack(norm=settings["norm"]))
    else:
        built = stack(features, **settings)
    if eps is not None:
        set_eps(built, eps)
    return built


def name_of(connection: Connection) -> str:
    """The name of its family, or of its class if that isn't registered."""
    kind = type(getattr(connection, "formula", connection))
    return next((family.name for family in list_connections() if family.connection is kind), kind.__name__)
