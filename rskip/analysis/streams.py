"""Streams at every residual block: how alike they are, how they are mixed over depth, and what each block reads.

m parts of a state, such as streams or earlier layers' outputs; P positions; C features. Weights come from the
connection's own description of its step (`rskip.connections.Mixing`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rskip.analysis.blocks import Block, at, watching_states
from rskip.analysis.registry import STREAMS
from rskip.connections import Mixing, StackConnection, State, mixing_of

INPUT = 0  # number of a source that is the stack's input; other sources have the numbers of their blocks


@dataclass
class _Depth:
    """What a stack's parts have become since it began.

    carried: the product of the blocks' `carries` (..., m, parts at the start).
    sources: the weight of each source in each part (..., m, number of sources).
    blocks: the sources' numbers.
    """

    carried: Tensor
    sources: Tensor
    blocks: list[int] = field(default_factory=lambda: [INPUT])

    @classmethod
    def begins(cls, parts: Tensor) -> _Depth:
        """A part of a stack's first state (..., m, C) is the stack's input, or zero everywhere."""
        holds_input = parts.movedim(-2, 0).flatten(1).any(1)
        return cls(torch.eye(len(holds_input), dtype=torch.float64), holds_input.double().unsqueeze(-1))

    def after(self, mixing: Mixing, block: Block) -> _Depth:
        sources, adds = mixing.carries @ self.sources, mixing.adds.unsqueeze(-1)
        shape = torch.broadcast_shapes(sources.shape[:-1], adds.shape[:-1])
        joined = torch.cat([each.expand(*shape, -1) for each in (sources, adds)], dim=-1)
        return _Depth(mixing.carries @ self.carried, joined, [*self.blocks, block.number])


class StreamRecorder:
    """Accumulates statistics of the states, block by block and batch by batch, while `recording`. Padding is excluded.

    Of the state after a block:

    - stream similarity: the mean cosine similarity of two of its m parts. It is 1 if all have the same direction, which
      is collapse.
    - effective rank: exp(entropy) of the singular values of its m × C matrix, divided by their sum (Roy & Vetterli
      2007). It is between 1, collapse, and m.

    Of H, the product of the blocks' matrices since the stack began, in hyper-connections of H_res:

    - row gain and column gain: the largest absolute sum of a row, and of a column (Xie et al. 2025, arXiv 2512.24880).
      They bound what a signal gains on the way forward, and a gradient on the way back.
    - from stochastic: the largest distance of a sum from 1, or the size of the smallest negative entry, if that is
      larger. It is 0 if H is doubly stochastic.
    - from identity: ‖H - I‖_F.

    Of a block's input, before its normalisation: the weight of each part, and the weight of each source, which is the
    stack's input or an earlier block's sublayer output. All values are means over positions.

    :param stacks: the model's stack connections, which tell where a stack begins.
    """

    def __init__(self, blocks: Sequence[Block], stacks: Sequence[StackConnection]) -> None:
        self.blocks = blocks
        self._stacks = stacks
        self._mixing = {block.number: mixing_of(block.connection) for block in blocks}
        self._depth: _Depth | None = None
        self._sums: dict[tuple[int, str, int], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])

    @property
    def undescribed(self) -> Block | None:
        """The first block whose connection has no description as a weighted sum."""
        return next((block for block in self.blocks if self._mixing[block.number] is None), None)

    @contextmanager
    def recording(self, masks: Mapping[str, Tensor] | None = None) -> Iterator[None]:
        """A context that records one forward pass; `masks` as in `SignalRecorder.recording`."""

        def on_enter() -> None:
            self._depth = None

        def on_step(block: Block, state: State, f: Tensor, new: State) -> None:
            mask = masks.get(block.stage) if masks else None
            if not block.connection.passes_x:
                parts = block.connection.parts(new).double()
                if parts.size(-2) > 1:
                    self._add(block, "stream_similarity", part_similarity(parts), mask)
                self._add(block, "effective_rank", effective_rank(parts), mask)
            describe = self._mixing[block.number]
            if describe is not None:
                given = describe(state, f)
                mixing = Mixing(reads=given.reads.double(), carries=given.carries.double(), adds=given.adds.double())
                self._follow(block, mixing, state, mask)

        on_enter()
        with watching_states(self.blocks, self._stacks, on_enter, on_step):
            yield

    def _follow(self, block: Block, mixing: Mixing, state: State, mask: Tensor | None) -> None:
        depth = self._depth or _Depth.begins(block.connection.parts(state))
        for part, weights in enumerate(mixing.reads.unbind(-1)):
            self._add(block, "part", weights, mask, part)
        read = (mixing.reads.unsqueeze(-2) @ depth.sources).squeeze(-2)
        for source, weights in zip(depth.blocks, read.unbind(-1), strict=True):
            self._add(block, "source", weights, mask, source)
        self._depth = depth = depth.after(mixing, block)
        for name, values in gains(depth.carried).items():
            self._add(block, name, values, mask)

    def _add(self, block: Block, name: str, values: Tensor, mask: Tensor | None, index: int = 0) -> None:
        kept = at(values, mask) if values.dim() else values
        kept = kept[kept.isfinite()]
        sums = self._sums[block.number, name, index]
        for place, each in enumerate((float(kept.sum()), float(kept.square().sum()), kept.numel())):
            sums[place] += each

    def _mean(self, block: Block, name: str, index: int = 0) -> tuple[float | None, float | None]:
        """Mean and standard deviation over positions, None without values."""
        total, squares, count = self._sums.get((block.number, name, index), (0.0, 0.0, 0.0))
        if not count:
            return None, None
        mean = total / count
        return mean, max(0.0, squares / count - mean * mean) ** 0.5

    def stream_rows(self) -> list[dict[str, Any]]:
        """One row per block: block, stage, name, sublayer, and STREAMS, which are None where they do not exist."""
        return [block.place | {name: self._mean(block, name)[0] for name in STREAMS} for block in self.blocks]

    def depth_rows(self) -> list[dict[str, Any]]:
        """One row per block and part, and one per block and source: over, index, weight and std over positions."""
        return [
            {**block.place, "over": f"{over}s", "index": index, "weight": mean, "std": std}
            for block in self.blocks
            for over in ("part", "source")
            for number, name, index in self._sums
            if (number, name) == (block.number, over)
            for mean, std in [self._mean(block, over, index)]
        ]


def part_similarity(parts: Tensor) -> Tensor:
    """The mean cosine similarity of two of m parts, 0 for a part of zeros: (..., m, C) -> (...)."""
    directions = torch.nn.functional.normalize(parts, dim=-1)
    count = parts.size(-2)
    pairs = directions.sum(-2).square().sum(-1) - directions.square().sum((-1, -2))
    return pairs / (count * (count - 1))


def effective_rank(parts: Tensor) -> Tensor:
    """exp(entropy) of the singular values, divided by their sum; not a number for zeros: (..., m, C) -> (...)."""
    values = torch.linalg.eigvalsh(parts @ parts.transpose(-1, -2)).clamp_min(0).sqrt()
    shares = values / values.sum(-1, keepdim=True)
    return torch.special.entr(shares).sum(-1).exp()


def gains(product: Tensor) -> dict[str, Tensor]:
    """The row and column gains of H, and for a square H its distances: (..., m, m') -> (...) each."""
    rows, columns = product.sum(-1), product.sum(-2)
    found = {"row_gain": rows.abs().amax(-1), "column_gain": columns.abs().amax(-1)}
    if product.size(-1) == product.size(-2):
        sums = torch.cat([rows, columns], dim=-1)
        off = torch.maximum((sums - 1).abs().amax(-1), -product.amin((-1, -2)))
        identity = torch.eye(product.size(-1), dtype=product.dtype)
        found |= {"from_stochastic": off, "from_identity": (product - identity).norm(dim=(-1, -2))}
    return found
