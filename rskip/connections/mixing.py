"""Connections whose step is a weighted sum of the parts of their state and of the sublayer output; analyses read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rskip.kernel_forms import NormalisedSum

if TYPE_CHECKING:
    from rskip.connections.connection import Connection, State


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """u = Σ_j reads_j·s_j and s'_k = Σ_j carries_kj·s_j + adds_k·f.

    s_1 to s_m are the parts of the state before the block, s' those after it (`Connection.parts`). u is the branch's
    input before its normalisation. Dimensions on the left are those of the positions; without them, the weights are the
    same at every position. For the weights of a stack's input, analyses take each part of the stack's first state as
    that input, unless the part is zero everywhere.

    :param reads: shape (..., m).
    :param carries: shape (..., m', m). In hyper-connections this is H_res.
    :param adds: shape (..., m').
    """

    reads: Tensor
    carries: Tensor
    adds: Tensor


def mixing_of(connection: Connection) -> Callable[[State, Tensor], Mixing] | None:
    """The connection's weights as a function of its state and the sublayer output; None if its step has another form.
    """
    if connection.overrides("as_mixing"):
        return connection.as_mixing
    stated = connection.kernel_form()
    if not isinstance(stated, NormalisedSum) or stated.norms or stated.added or stated.output_norm:
        return None
    if stated.input_scale != 1:
        return None
    factors = [torch.as_tensor(factor).detach().reshape(-1) for factor in (stated.scale, stated.branch_scale)]
    if any(len(factor) > 1 for factor in factors):  # one per feature
        return None
    reads, carries, adds = torch.ones(1), factors[0][None], factors[1]
    return lambda state, f: Mixing(reads=reads, carries=carries, adds=adds)
