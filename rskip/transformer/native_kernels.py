"""The parts of a decoding step as calls of the compiled kernels. C features, R rows: the beams of all sentences.

Each part has `operation`, its kernel's arguments over given memory, and is callable on tensors.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections import Connection
from rskip.connections.norms import EPS, LayerNorm, RMSNorm
from rskip.connections.prenorm import PreNorm
from rskip.connections.rskip import RSkip, XSkip
from rskip.native.library import TYPES, Library, Linear, Residual
from rskip.native.linear import linear_arguments


class LinearMap:
    """xWᵀ + b, or with `relu` max(0, xWᵀ + b). Shape: (R, in) -> (R, out)."""

    def __init__(self, linear: Any, *, relu: bool = False) -> None:
        self.linear, self.relu = linear, relu
        self.outputs = linear.weight.size(0)
        self.native = linear.weight.dtype in TYPES and linear.weight.is_contiguous()

    def operation(self, x: Tensor, output: Tensor) -> Linear:
        """The kernel's arguments."""
        return linear_arguments(x, self.linear.weight, self.linear.bias, output, relu=self.relu)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return y.relu_() if self.relu else y


class ResidualNorms:
    """y_0 = branch_scale·f, y_k = norm_k(scale·x + y_(k-1)), y = y_n; scale·x + y_0 without norms. Shape: (R, C)."""

    def __init__(
        self, norms: list[Any], library: Library, *, scale: float = 1.0, branch_scale: float = 1.0
    ) -> None:
        self._residual = library.residual
        self._weights = _addresses([norm.weight for norm in norms])
        self._biases = _addresses([norm.bias for norm in norms if isinstance(norm, nn.LayerNorm)])
        self._fixed: dict[str, Any] = {
            "weights": ctypes.addressof(self._weights),
            "biases": ctypes.addressof(self._biases) if len(self._biases) else None,
            "norms": len(norms),
            "scale": scale,
            "branch_scale": branch_scale,
            "epsilon": EPS,
        }
        self.branch_norm: ResidualNorms | None = None

    def branch_input(self, x: Tensor) -> Tensor:
        """What the branch is fed."""
        return x if self.branch_norm is None else self.branch_norm(x)

    def operation(self, x: Tensor, f: Tensor | None, output: Tensor) -> Residual:
        """The kernel's arguments. The output may be x or f."""
        return Residual(
            x=x.data_ptr(), f=None if f is None else f.data_ptr(), output=output.data_ptr(),
            features=x.size(1), type=TYPES[x.dtype], **self._fixed,
        )  # fmt: skip

    def __call__(self, x: Tensor, f: Tensor | None = None) -> Tensor:
        y = torch.empty_like(x)
        self._residual(self.operation(x, f, y), x.size(0))
        return y


def build_joint(connection: Connection, library: Library) -> ResidualNorms | Connection:
    """The connection by the kernel, where that computes it; or else itself."""
    norms = (LayerNorm, RMSNorm)
    if type(connection) is XSkip and isinstance(connection.norm, (*norms, type(None))):
        own = [] if connection.norm is None else [connection.norm]
        return ResidualNorms(own, library, scale=connection.scale, branch_scale=connection.branch_scale)
    if type(connection) is RSkip and all(isinstance(norm, norms) for norm in connection.norms):
        return ResidualNorms(list(connection.norms), library)
    if type(connection) is PreNorm and isinstance(connection.norm, norms):
        joint = ResidualNorms([], library)
        joint.branch_norm = ResidualNorms([connection.norm], library)
        return joint
    return connection


def _addresses(tensors: list[Tensor]) -> ctypes.Array:
    return (ctypes.c_void_p * len(tensors))(*(each.data_ptr() for each in tensors))
