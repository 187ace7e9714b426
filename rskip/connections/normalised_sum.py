"""Connections that consist of sums and normalisations, or of gates too; the compiled kernels compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from rskip.connections.first_gain import FirstGain, kind_of
from rskip.connections.gates import Gate
from rskip.connections.norms import LayerNorm, RMSNorm
from rskip.kernel_forms import GatedSum, NormalisedSum

if TYPE_CHECKING:
    from rskip.connections.connection import Connection

_FORMULA = ("branch_input", "combine", "before", "after", "forward")


def normalised_sum(connection: Connection) -> NormalisedSum | None:
    """The result of the connection's `as_norms`; None if the kernels can't compute it.

    A class that overrides one of the formula's methods must define its own `as_norms`; an inherited one is ignored.
    """
    if not states_own_formula(connection, "as_norms"):
        return None
    stated = connection.as_norms()
    if stated is None:
        return None
    norms = [norm for norm in (*stated.norms, stated.branch_norm, stated.output_norm) if norm is not None]
    is_plain = all(map(is_plain_norm, norms))
    of_one_kind = len({(kind_of(norm), norm.eps) for norm in stated.norms}) <= 1
    return stated if is_plain and of_one_kind else None


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


def is_plain_norm(norm: nn.Module) -> bool:
    """Whether it is one of the norms that the kernels compute."""
    is_known = type(norm) in (LayerNorm, RMSNorm, FirstGain) and kind_of(norm) in (LayerNorm, RMSNorm)
    return is_known and norm.__dict__["feature_dim"] == -1


def states_own_formula(connection: Connection, method: str) -> bool:
    """Whether its class, not one that it inherits another formula from, defines this method."""
    if vars(connection).keys() & {*_FORMULA, method}:
        return False
    for base in type(connection).__mro__:
        if method in vars(base):
            return True
        if vars(base).keys() & {*_FORMULA}:
            return False
    return False
