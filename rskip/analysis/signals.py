"""Signals and gradients at every residual block: RMS of x, f and y, cosine similarity of y's positions, gate values and
the loss gradient.

B batch, T positions, C features; on images (N, C, H, W).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rskip.analysis.blocks import Block, at, watching
from rskip.analysis.gates import watching_gates

Masks = Mapping[str, Tensor]


class SignalRecorder:
    """Accumulates statistics of the connections, block by block and batch by batch, while `recording`.

    - RMS: √(mean square over all features, positions and examples), without padding.
    - Similarity, only for batches with masks (text): the mean pairwise cosine similarity of y at two positions, over an
      example's pairs of positions without padding and over the examples with at least two. It is 1 if y has the same
      direction at all positions: rank collapse (Dong et al. 2021, arXiv 2103.03404; Noci et al. 2022, arXiv
      2206.03126).
    - Gradient: ‖∂L/∂y‖₂ over each example's part of y, averaged over examples (rSkip Fig. 3, SAS Fig. 4). If L is a sum
      of independent losses, this is the gradient of each example's own loss.
    - Gates: the mean over positions and examples of alpha, beta, gamma (SAS; (1-α)(1-β) if gamma is tied) and transform
      (highway).

    Squares are summed in float64, because `3xskip` reaches 1e25 in a deep ResNet.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self._sums: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._counts: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    @contextmanager
    def recording(self, masks: Masks | None = None) -> Iterator[None]:
        """A context that records one forward pass, and one backward pass if it runs.

        A block's second call is ignored, because activation checkpointing repeats the first one.

        :param masks: true at positions that are not padding (B, T), by stage. None: nothing is padded.
        """
        seen: set[int] = set()

        def on_call(block: Block, x: Tensor, f: Tensor, y: Tensor) -> None:
            if block.number in seen:
                return
            seen.add(block.number)
            mask = None if masks is None else masks.get(block.stage)
            for name, tensor in (("x_rms", x), ("f_rms", f), ("y_rms", y)):
                self._add(block, name, at(tensor.detach(), mask).double().square())
            if mask is not None:
                self._add(block, "similarity", similarity(y, mask))
            for name, values in gates_of(block).items():
                self._add(block, name, at(values, mask))
            if y.requires_grad:
                y.register_hook(lambda gradient: self._add(block, "gradient", example_norms(gradient)))

        with watching_gates(self.blocks) as gates_of, watching(self.blocks, on_call):
            yield

    def _add(self, block: Block, name: str, values: Tensor) -> None:
        if not values.numel():  # no example has two positions
            return
        self._sums[block.number][name] += float(values.sum())
        self._counts[block.number][name] += values.numel()

    def values(self, block: Block) -> dict[str, float]:
        """The block's statistics: x_rms, f_rms, y_rms, gates, on text similarity, after a backward pass gradient."""
        sums, counts = self._sums[block.number], self._counts[block.number]
        means = {name: sums[name] / counts[name] for name in sums}
        return {name: mean**0.5 if name.endswith("_rms") else mean for name, mean in means.items()}

    def rows(self) -> list[dict[str, Any]]:
        """One row per block that was called: block, stage, name, sublayer, and `values`."""
        return [block.place | self.values(block) for block in self.blocks if block.number in self._sums]


def similarity(y: Tensor, mask: Tensor) -> Tensor:
    """The mean pairwise cosine similarity of y's positions, in float64, for each example with at least two positions.

    If y is 0, its cosine is 0. Shape: (B, T, ...), mask (B, T) -> (at most B).
    """
    y = y.detach().flatten(2).double().masked_fill(~mask.unsqueeze(2), 0.0)
    directions = torch.nn.functional.normalize(y, dim=2)
    count = mask.sum(1).double()
    pairs = directions.sum(1).square().sum(1) - directions.square().sum((1, 2))  # Σ over s != t of cos(y_s, y_t)
    return (pairs / (count * (count - 1)))[count > 1]


def example_norms(tensor: Tensor) -> Tensor:
    """The Euclidean norm per example, in float64. Shape: (B, ...) -> (B)."""
    return torch.linalg.vector_norm(tensor.detach(), dim=tuple(range(1, tensor.dim())), dtype=torch.float64)
