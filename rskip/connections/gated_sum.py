"""Connections that consist of gates, sums and a normalisation; the compiled kernels compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.connections.gates import Gate
from rskip.connections.normalised_sum import is_plain_norm, states_own_formula
from rskip.kernel_forms import GatedSum

if TYPE_CHECKING:
    from rskip.connections.connection import Connection


def gated_sum(connection: Connection) -> GatedSum | None:
    """The result of the connection's `as_gates`; None if the kernels can't compute it.

    A class that overrides one of the formula's methods must define its own `as_gates`; an inherited one is ignored.
    """
    if not states_own_formula(connection, "as_gates"):
        return None
    stated = connection.as_gates()
    if stated is None or connection.feature_dim != -1:
        return None
    norms = [norm for norm in (stated.norm, stated.branch_norm) if norm is not None]
    gates = [gate for gate in (stated.alpha, stated.beta, stated.gamma) if gate is not None]
    has_gates = stated.form == "delta" or all(type(gate) is Gate for gate in gates)
    suits = all(map(is_plain_norm, norms)) and has_gates
    return stated if suits else None
