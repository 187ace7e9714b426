"""Linear maps over weights that are packed once for the kernels. It needs NumPy, but no PyTorch. R rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from rskip.cpu.library import Library
from rskip.cpu.structures import Linear, Linear8, Packing, Packing8, kind_of

ZERO_POINT = 128  # of 8-bit rows
FEWEST_INT8_WEIGHTS = 2**10  # smaller linear maps gain nothing in int8 and stay in float32 (docs/speed_reference.md)
_QUANTISED_AT_ONCE = 2**16  # number of weights
_MOST_AT_ONCE = 32  # maximum number of output features at a time
_TINY = np.finfo(np.float32).tiny


def pack_weight(library: Library, weight: Any) -> np.ndarray:
    """A contiguous weight (out, in) in the layout that this processor's products read."""
    outputs, inputs = weight.shape
    packing = Packing(weight=weight, inputs=inputs, outputs=outputs)
    packed = np.empty(library.packed_bytes(inputs, outputs, packing.type), np.uint8)
    packing.point("packed", packed)
    library.pack(packing)
    return packed


def linear_arguments(x: Any, weight: Any, packed: np.ndarray, bias: Any) -> Linear:
    """Arguments of xWᵀ + b without the output. All arrays are contiguous and of one type."""
    outputs, inputs = weight.shape
    assert x.shape[-1] == inputs and kind_of(x) == kind_of(weight), f"expected {inputs} features of {kind_of(weight)}"
    return Linear(x=x, weight=packed, bias=bias, inputs=inputs, outputs=outputs)


class PackedWeight8:
    """A weight (out, in) of 8-bit integers with its scales (out,) and bias, in the layout that the kernel reads."""

    def __init__(self, library: Library, weight: Any, scales: Any, bias: Any) -> None:
        self.outputs, self.inputs = weight.shape
        self.weight = np.empty(library.packed_bytes8(self.inputs, self.outputs), np.uint8)
        weight = np.ascontiguousarray(weight)
        offsets = ZERO_POINT * weight.sum(1, dtype=np.int32)
        self.scales, self.offsets = _padded(scales), _padded(offsets)
        self.bias = None if bias is None else _padded(bias)
        library.pack8(Packing8(weight=weight, packed=self.weight, inputs=self.inputs, outputs=self.outputs))

    def arguments(self, x: Any) -> Linear8:
        """Arguments of the product with x (R, in), float32 and contiguous, without the output."""
        assert x.shape[-1] == self.inputs, f"expected {self.inputs} features"
        return Linear8(
            x=x, weight=self.weight, scales=self.scales, bias=self.bias, offsets=self.offsets,
            inputs=self.inputs, outputs=self.outputs,
        )  # fmt: skip


def _padded(values: Any) -> np.ndarray:
    values = np.asarray(values)
    return np.pad(values, (0, -len(values) % _MOST_AT_ONCE))


class PackedMap:
    """xWᵀ + b with a weight (out, in) and a bias (out,) or None, of a file. See `rskip.cpu.linear.PackedLinear`."""

    def __init__(self, library: Library, weight: np.ndarray, bias: np.ndarray | None) -> None:
        self.out_features, self.in_features = weight.shape
        self._bias, self.packed = bias, pack_weight(library, np.ascontiguousarray(weight))

    def native_arguments(self, x: Any) -> Linear:
        """The kernel's arguments for this map of x (R, in), without the output's address."""
        assert x.shape[-1] == self.in_features, f"expected {self.in_features} features"
        return Linear(x=x, weight=self.packed, bias=self._bias, inputs=self.in_features, outputs=self.out_features)


class PackedTable:
    """An embedding (V, C) in float32 that is the packed weight of a linear map, so that a tied one is stored once."""

    dtype = np.dtype(np.float32)

    def __init__(self, linear: PackedMap) -> None:
        self.shape = linear.out_features, linear.in_features
        self.values = linear.packed.view(self.dtype)

    def __len__(self) -> int:
        return self.shape[0]


class Int8Map:
    """xWᵀ + b in 8-bit integers, of a weight (out, in) in float32. See `rskip.cpu.int8.Int8Linear`."""

    def __init__(self, library: Library, weight: np.ndarray, bias: np.ndarray | None) -> None:
        self.out_features, self.in_features = weight.shape
        rounded, scales = np.empty(weight.shape, np.int8), np.empty(len(weight), np.float32)
        rows = max(1, _QUANTISED_AT_ONCE // self.in_features)
        for first in range(0, len(weight), rows):
            part = slice(first, first + rows)
            scales[part] = np.maximum(np.abs(weight[part]).max(1), _TINY) / np.float32(library.largest_weight)
            rounded[part] = np.rint(weight[part] / scales[part, None])
        self._packed = PackedWeight8(library, rounded, scales, bias)

    def native_arguments(self, x: Any) -> Linear8:
        """The kernel's arguments for this map of x (R, in), without the output's address."""
        return self._packed.arguments(x)
