"""Ratios of x to F(x) in a block's output, by three definitions, and the scale of x there.

For fixed gate values and normalisation statistics, most connections are y = c_x ⊙ x + c_f ⊙ f + a constant, element by
element (rSkip Eq. 6). Others, such as orthogonal, have only the norm. P positions of a batch, C features.

    coefficient   c_x / c_f, per feature and position: σ₁/w₁ + 1 for 2rskip+ln, λ for λxskip+ln
    norm          ‖x‖ / ‖f‖, per position
    contribution  ‖c_x ⊙ x‖ / ‖c_f ⊙ f‖, per position
    scale         c_x, per feature and position
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rskip.analysis.blocks import Block, at, watching
from rskip.connections import Connection, name_of
from rskip.connections.linear import Gate
from rskip.connections.norms import kind_of
from rskip.connections.one_stream import GPAS

DEFINITIONS = ("coefficient", "norm", "contribution", "scale")
_TOLERANCE = 1e-3  # relative to the largest coefficient; float32's rounding is far below it, not bfloat16's
SAMPLE = 100_000  # maximum number of values to keep per block and definition
QUARTILES = {"median": 0.5, "lower": 0.25, "upper": 0.75}

_BatchNorm = nn.modules.batchnorm._BatchNorm
_Norm = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _BatchNorm)


class NotLinear(ValueError):
    """Raised for a connection that is not linear feature by feature, so that it has no coefficients."""


def coefficients(connection: Connection, x: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """c_x and c_f, each with x's shape: the derivatives of y with gates and normalisation statistics held fixed.

    Gates must be modules of the type `Gate`; normalisations must come from `build_norm` or torch.nn.

    :raises NotLinear: y is not c_x ⊙ x + c_f ⊙ f + a constant, because it mixes features or is nonlinear.
    :raises ValueError: a normalisation is over other dimensions.
    """
    with ExitStack() as stack, torch.enable_grad():
        for module in connection.modules():
            if isinstance(module, Gate):
                stack.callback(module.register_forward_hook(lambda _, __, gate: gate.detach()).remove)
            elif issubclass(kind_of(module), _Norm):
                stack.callback(module.register_forward_hook(_held_fixed).remove)
        x, f = (tensor.detach().requires_grad_() for tensor in (x, f))
        y = connection.combine(x, f)
        c_x, c_f = torch.autograd.grad(y.sum(), (x, f), create_graph=True, materialize_grads=True)
        weights = torch.rand(y.shape, generator=torch.Generator().manual_seed(1)).to(y)  # or features that mix cancel
        rest = weights * (y - c_x * x - c_f * f)
        slopes = torch.autograd.grad(rest.sum(), (x, f), materialize_grads=True)
    tolerance = max(_TOLERANCE, 8 * torch.finfo(y.dtype).eps)
    for slope, coefficient in zip(slopes, (c_x, c_f), strict=True):
        if (slope.abs() > tolerance * coefficient.abs().max()).any():
            raise NotLinear(f"{name_of(connection)} is not linear feature by feature: it has no coefficients")
    kept = connection.kept.detach() if isinstance(connection, GPAS) else 1.0
    return kept * c_x.detach(), kept * c_f.detach()


def _held_fixed(norm: Any, inputs: tuple[Tensor], y: Tensor) -> Tensor:
    """The normalisation's output as an affine map of its input."""
    (z,), kind = inputs, kind_of(norm)
    features = 1 if issubclass(kind, (nn.GroupNorm, _BatchNorm)) else getattr(norm, "feature_dim", -1)
    others = [dim for dim in range(z.dim()) if dim != features % z.dim()]
    over = others if issubclass(kind, _BatchNorm) else [features]
    if issubclass(kind, nn.GroupNorm):
        over = list(range(1, z.dim()))

    def of_features(values: Tensor | None, absent: float) -> Tensor | float:
        return absent if values is None else values.view([1 if dim in others else -1 for dim in range(z.dim())])

    fixed = z.detach()
    mean: Tensor | float = 0.0
    variance: Tensor | float
    if issubclass(kind, nn.RMSNorm):
        variance = fixed.square().mean(dim=over, keepdim=True)
    elif issubclass(kind, _BatchNorm) and not norm.training:
        mean, variance = of_features(norm.running_mean, 0.0), of_features(norm.running_var, 1.0)
    else:
        variance, mean = torch.var_mean(fixed, dim=over, correction=0, keepdim=True)
    eps = torch.finfo(z.dtype).eps if norm.eps is None else norm.eps  # as in nn.RMSNorm
    slope = of_features(norm.weight, 1.0) / (variance + eps) ** 0.5
    affine = (z - mean) * slope + of_features(getattr(norm, "bias", None), 0.0)
    tolerance = 0.01 * float(y.detach().nan_to_num().abs().max())  # wide, because sums differ if means are large
    if affine.shape != y.shape or not torch.allclose(affine, y, atol=tolerance, equal_nan=True):
        raise ValueError(f"the statistics of {norm} can't be held fixed: use a normalisation from `build_norm`")
    return affine


class RatioRecorder:
    """Collects the ratios, block by block and batch by batch, while `recording`. Padding is excluded.

    It keeps up to SAMPLE values per block and definition. If there are more, it draws them at random with replacement,
    from each batch in proportion to its number of examples.

    :param examples: number of examples in all batches together.
    """

    def __init__(self, blocks: Sequence[Block], *, examples: int, seed: int) -> None:
        self.blocks = blocks
        self._examples = examples
        self._generator = torch.Generator().manual_seed(seed)
        self._kept: dict[tuple[int, str], list[Tensor]] = defaultdict(list)
        self._not_linear: set[int] = set()

    @contextmanager
    def recording(self, masks: Mapping[str, Tensor] | None = None) -> Iterator[None]:
        """A context that records one forward pass; `masks` as in `SignalRecorder.recording`."""

        def on_call(block: Block, x: Tensor, f: Tensor, _: Tensor) -> None:
            mask = masks.get(block.stage) if masks else None
            try:
                c_x, c_f = coefficients(block.connection, x, f)
            except NotLinear:
                self._not_linear.add(block.number)
                c_x = c_f = torch.full_like(x, math.nan)
            tensors = (x.detach(), f.detach(), c_x, c_f)
            for name, values in ratios_of(*(at(_last(each, block), mask) for each in tensors)).items():
                self._keep(block, name, values.flatten(), share=len(x) / self._examples)

        with watching(self.blocks, on_call):
            yield

    def _keep(self, block: Block, name: str, values: Tensor, *, share: float) -> None:
        quota = math.ceil(SAMPLE * share)
        if len(values) > quota:
            values = values[torch.randint(len(values), (quota,), generator=self._generator)]
        self._kept[block.number, name].append(values.float())

    def rows(self) -> list[dict[str, Any]]:
        """One row per block and definition: block, stage, name, sublayer, definition, median, lower, upper.

        If a block is not linear feature by feature in any batch, only its norm has values; the others are NaN.
        """
        rows = []
        for block in self.blocks:
            for name in DEFINITIONS:
                if kept := self._kept.get((block.number, name)):
                    levels = torch.tensor(list(QUARTILES.values()))
                    values = torch.cat(kept).nanquantile(levels, interpolation="nearest").tolist()
                    if block.number in self._not_linear and name != "norm":
                        values = [math.nan] * len(values)
                    rows.append({**block.place, "definition": name, **dict(zip(QUARTILES, values, strict=True))})
        return rows


def ratios_of(x: Tensor, f: Tensor, c_x: Tensor, c_f: Tensor) -> dict[str, Tensor]:
    """The values of each of DEFINITIONS; features come last. Shape: (..., C) -> (..., C) or (...)."""
    return {
        "coefficient": c_x / c_f,
        "norm": x.norm(dim=-1) / f.norm(dim=-1),
        "contribution": (c_x * x).norm(dim=-1) / (c_f * f).norm(dim=-1),
        "scale": c_x,
    }


def _last(tensor: Tensor, block: Block) -> Tensor:
    """Features last."""
    return tensor.movedim(block.connection.feature_dim, -1)
