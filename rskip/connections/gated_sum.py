"""Connections that consist of gates, sums and a normalisation; the compiled kernels compute them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import nn

from rskip.connections.gates import Gate
from rskip.connections.normalised_sum import is_plain_norm, states_own_formula

if TYPE_CHECKING:
    from rskip.connections.connection import Connection


@dataclass(frozen=True, kw_only=True)
class GatedSum:
    """y = αx + βf + γ norm(x + f), where α, β and γ are `Gate`s, and the term with γ is 0 without a norm.

    :param form: "scaling": α, β, γ; without a gate γ = (1-α)(1-β). "highway": α = 1-T and β = T with T = `alpha`.
        "shortcut": α = 1-T and β = 1.
    :param over: the gates' input, x or [x; f].
    :param branch_norm: the branch's input is branch_norm(x), or x if that is None.
    """

    form: Literal["scaling", "highway", "shortcut"]
    over: Literal["x", "both"]
    alpha: Gate
    beta: Gate | None = None
    gamma: Gate | None = None
    norm: nn.Module | None = None
    branch_norm: nn.Module | None = None


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
    suits = all(map(is_plain_norm, norms)) and all(type(gate) is Gate for gate in gates)
    return stated if suits else None
