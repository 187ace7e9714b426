"""Gate values at every residual block, as means and histograms (SAS Fig. 3).

B batch, T positions, C features; on images (N, H, W, C), with features last as in gates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from rskip.analysis.blocks import Block, at, watching
from rskip.connections import Connection, SASConnection
from rskip.connections.linear import Gate

BINS = 20  # of equal width, from 0 to 1

GatesOf = Callable[[Block], dict[str, Tensor]]


def named_gates(connection: Connection) -> dict[str, Gate]:
    """The connection's gates. A gate is named after its member, without `_gate`: alpha, beta, gamma; transform."""
    members = {name: module for name, module in connection.named_children() if isinstance(module, Gate)}
    return {"transform" if name == "gate" else name.removesuffix("_gate"): gate for name, gate in members.items()}


@contextmanager
def watching_gates(blocks: Sequence[Block]) -> Iterator[GatesOf]:
    """A context that yields a function, which returns the gate values of a block's last call, by name.

    If SAS's gamma is tied, it is (1-α)(1-β). Shape: (..., 1), or (..., C) for gates with one value per feature.
    """
    found: dict[int, dict[str, Tensor]] = defaultdict(dict)

    def hook(block: Block, name: str) -> Callable[..., None]:
        def note(_: object, __: object, output: Tensor) -> None:
            found[block.number][name] = output.detach()

        note.observes = True  # type: ignore[attr-defined]  # the connection may go on with its kernels
        return note

    def gates_of(block: Block) -> dict[str, Tensor]:
        gates, connection = found.pop(block.number, {}), block.connection
        if isinstance(connection, SASConnection) and "norm" in connection._modules and "gamma" not in gates:
            gates["gamma"] = (1 - gates["alpha"]) * (1 - gates["beta"])
        return gates

    with ExitStack() as stack:
        for block in blocks:
            for name, gate in named_gates(block.connection).items():
                stack.callback(gate.register_forward_hook(hook(block, name)).remove)
        yield gates_of


class GateRecorder:
    """Counts gate values, block by block and batch by batch, while `recording`. Padding is excluded."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self._sums: dict[tuple[int, str], float] = defaultdict(float)
        self._counts: dict[tuple[int, str], Tensor] = defaultdict(lambda: torch.zeros(BINS, dtype=torch.float64))

    @contextmanager
    def recording(self, masks: Mapping[str, Tensor] | None = None) -> Iterator[None]:
        """A context that records one forward pass; `masks` as in `SignalRecorder.recording`."""

        def on_call(block: Block, *_: Tensor) -> None:
            for name, values in gates_of(block).items():
                kept = at(values, masks.get(block.stage) if masks else None)
                self._sums[block.number, name] += float(kept.sum(dtype=torch.float64))
                self._counts[block.number, name] += torch.histc(kept, BINS, 0, 1).cpu()

        with watching_gates(self.blocks) as gates_of, watching(self.blocks, on_call):
            yield

    def rows(self) -> list[dict[str, Any]]:
        """One row per gate and block: block, stage, name, sublayer, gate, mean, and shares h00, h01, ... of BINS."""
        rows = []
        for block in self.blocks:
            for number, gate in self._sums:
                if number == block.number:
                    counts = self._counts[number, gate]
                    count = float(counts.sum())
                    shares = {f"h{place:02}": each / count for place, each in enumerate(counts.tolist())}
                    rows.append({**block.place, "gate": gate, "mean": self._sums[number, gate] / count, **shares})
        return rows
