"""Ratios of x to F(x) in a block's output, by three definitions, and x's own scale there.

Given the gates' values and the normalisations' statistics, a connection is y = c_x ⊙ x + c_f ⊙ f + a constant, element
by element (rSkip Eq. 6). P positions of a batch, C features.

    coefficient   c_x / c_f, of each feature and position: 2rskip+ln gives σ₁/w₁ + 1, λxskip+ln λ
    norm          ‖x‖ / ‖f‖, of each position
    contribution  ‖c_x ⊙ x‖ / ‖c_f ⊙ f‖, of each position
    scale         c_x, of each feature and position
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
from rskip.connections import Connection
from rskip.connections.first_gain import kind_of
from rskip.connections.gates import Gate

DEFINITIONS = ("coefficient", "norm", "contribution", "scale")
SAMPLE = 100_000  # values of a block and definition that are kept
QUARTILES = {"median": 0.5, "lower": 0.25, "upper": 0.75}

_BatchNorm = nn.modules.batchnorm._BatchNorm
_Norm = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _BatchNorm)


def coefficients(connection: Connection, x: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """c_x and c_f, each of x's shape: the derivatives of y while gates and normalisations' statistics are held fixed.

    Gates are modules of the type `Gate`, normalisations those of `build_norm` or torch.nn.

    :raises ValueError: a normalisation over other dimensions.
    """
    with ExitStack() as stack, torch.enable_grad():
        for module in connection.modules():
            if isinstance(module, Gate):
                stack.callback(module.register_forward_hook(lambda _, __, gate: gate.detach()).remove)
            elif issubclass(kind_of(module), _Norm):
                stack.callback(module.register_forward_hook(_held_fixed).remove)
        x, f = (tensor.detach().requires_grad_() for tensor in (x, f))
        c_x, c_f = torch.autograd.grad(connection.combine(x, f).sum(), (x, f), materialize_grads=True)
    return c_x, c_f


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
    eps = torch.finfo(z.dtype).eps if norm.eps is None else norm.eps  # as nn.RMSNorm takes it
    slope = of_features(norm.weight, 1.0) / (variance + eps) ** 0.5
    affine = (z - mean) * slope + of_features(getattr(norm, "bias", None), 0.0)
    tolerance = 0.01 * float(y.detach().nan_to_num().abs().max())  # wide: sums differ where means are large
    if affine.shape != y.shape or not torch.allclose(affine, y, atol=tolerance, equal_nan=True):
        raise ValueError(f"{norm} is none of the normalisations whose statistics can be held fixed: see `build_norm`")
    return affine


class RatioRecorder:
    """Collects the ratios, block by block and batch by batch, while `recording`; padding left out.

    Of a block and definition SAMPLE values are kept: all where there are no more, else drawn at random, with
    replacement, as many of each batch as it has examples.

    :param examples: of all batches together.
    """

    def __init__(self, blocks: Sequence[Block], *, examples: int, seed: int) -> None:
        self.blocks = blocks
        self._examples = examples
        self._generator = torch.Generator().manual_seed(seed)
        self._kept: dict[tuple[int, str], list[Tensor]] = defaultdict(list)

    @contextmanager
    def recording(self, masks: Mapping[str, Tensor] | None = None) -> Iterator[None]:
        """Within the block one forward pass is taken in.

        :param masks: true where a position is no padding, by stage: (B, T). None: nothing is padded.
        """

        def on_call(block: Block, x: Tensor, f: Tensor, _: Tensor) -> None:
            mask = masks.get(block.stage) if masks else None
            tensors = (x.detach(), f.detach(), *coefficients(block.connection, x, f))
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
        """One row a definition of a block: block, stage, name, sublayer, definition, median, lower, upper."""
        rows = []
        for block in self.blocks:
            for name in DEFINITIONS:
                if kept := self._kept.get((block.number, name)):
                    levels = torch.tensor(list(QUARTILES.values()))
                    values = torch.cat(kept).nanquantile(levels, interpolation="nearest").tolist()
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
