"""Linear maps over weights that are packed once for the kernels. It needs NumPy, but no PyTorch. R rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from rskip.cpu.library import Library
from rskip.cpu.structures import Linear, Linear8, Packing, Packing8, kind_of

ZERO_POINT = 128  # of 8-bit rows
FEWEST_INT8_WEIGHTS = 2**10  # smaller linear maps gain nothing in int8 and stay in float32 (docs/speed.md)
_QUANTISED_AT_ONCE = 2**16  # number of weights
_MOST_AT_ONCE = 32  # maximum number of output features at a time
_TINY = np.finfo(np.float32).tiny


class PackedMap:
    """xWᵀ + b over a weight (out, in) in the layout that this processor's products read.

    :param weight, bias: contiguous and of one type; bias (out,) or None.
    """

    def __init__(self, library: Library, weight: Any, bias: Any) -> None:
        self.out_features, self.in_features = outputs, inputs = weight.shape
        self.bias, self._kind = bias, kind_of(weight)
        packing = Packing(weight=weight, inputs=inputs, outputs=outputs)
        self.weight = np.empty(library.packed_bytes(inputs, outputs, packing.type), np.uint8)
        packing.point("packed", self.weight)
        library.pack(packing)

    def native_arguments(self, x: Any) -> Linear:
        """The kernel's arguments for this map of x (R, in), contiguous, without the output's address."""
        assert x.shape[-1] == self.in_features, f"expected {self.in_features} features"
        assert kind_of(x) == self._kind, f"expected {self._kind}"
        return Linear(x=x, weight=self.weight, bias=self.bias, inputs=self.in_features, outputs=self.out_features)


class PackedTable:
    """An embedding (V, C) in float32 that is the packed weight of a linear map, so that a tied one is stored once."""

    dtype = np.dtype(np.float32)

    def __init__(self, linear: PackedMap) -> None:
        self.shape = linear.out_features, linear.in_features
        self.values = linear.weight.view(self.dtype)


class PackedMap8:
    """xWᵀ + b in 8-bit integers over a weight (out, in) with its scales (out,) and bias, in the kernel's layout."""

    def __init__(self, library: Library, weight: Any, scales: Any, bias: Any) -> None:
        self.out_features, self.in_features = weight.shape
        self.weight = np.empty(library.packed_bytes8(self.in_features, self.out_features), np.uint8)
        weight = np.ascontiguousarray(weight)
        self.scales, self.offsets = _padded(scales), _padded(ZERO_POINT * weight.sum(1, dtype=np.int32))
        self.bias = None if bias is None else _padded(bias)
        library.pack8(Packing8(weight=weight, packed=self.weight, inputs=self.in_features, outputs=self.out_features))

    def native_arguments(self, x: Any) -> Linear8:
        """The kernel's arguments for this map of x (R, in), float32 and contiguous, without the output's address."""
        assert x.shape[-1] == self.in_features, f"expected {self.in_features} features"
        return Linear8(
            x=x, weight=self.weight, scales=self.scales, bias=self.bias, offsets=self.offsets,
            inputs=self.in_features, outputs=self.out_features,
        )  # fmt: skip


def _padded(values: Any) -> np.ndarray:
    values = np.asarray(values)
    return np.pad(values, (0, -len(values) % _MOST_AT_ONCE))


def in_float32(values: Any, count: int | None = None) -> np.ndarray:
    """An array or a tensor in float32; with `count`, its one value or `count` values as `count` values."""
    if hasattr(values, "detach"):
        values = values.detach().float().numpy()
    values = np.asarray(values, np.float32)
    return values if count is None else np.ascontiguousarray(np.broadcast_to(values, (count,)))


def quantised(weight: Any, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """A weight (out, in) as 8-bit integers up to `largest`, and the scale of each output feature (out,)."""
    rounded, scales = np.empty(tuple(weight.shape), np.int8), np.empty(len(weight), np.float32)
    rows = max(1, _QUANTISED_AT_ONCE // weight.shape[1])
    for first in range(0, len(weight), rows):
        part = slice(first, first + rows)
        values = in_float32(weight[part])
        scales[part] = np.maximum(np.abs(values).max(1), _TINY) / np.float32(largest)
        rounded[part] = np.rint(values / scales[part, None])
    return rounded, scales
