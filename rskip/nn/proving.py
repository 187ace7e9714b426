"""Proves that all residual additions of a model's blocks were replaced, and nothing else, in three probes.

1. Own: each join is the library's sum. Outputs and gradients are equal bit by bit, in evaluation and in training.
2. Skip: each join returns the skip. A block's output no longer depends on its branches; a pre-norm block returns its
   input.
3. Branch: each join returns a constant in place of what follows from the skip. A block's output no longer depends on
   its input.

The first alone proves little: any sum that is replaced by a sum is equal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rskip.nn.adapted import AdaptedBlock, replaced


class Unproven(Exception):
    """A probe failed, with the reason."""


class Own:
    """Computes the library's sums.

    :param seen: the ids of the blocks that ran.
    """

    seen: ClassVar[set[int]] = set()

    def __init__(self, block: AdaptedBlock, x: Tensor) -> None:
        self.block, self.given = block, x
        self.seen.add(id(block))

    def at(self, number: int) -> Own:
        return self

    def join(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        return left + right

    inner = unseen = join

    def end(self, output: Any) -> Any:
        return output


class _Probe(Own):
    def _stream(self, output: Any) -> Tensor:
        slot = self.block.rskip_route.slot
        stream: Tensor = output if slot is None else output[slot]
        return stream


class Skip(_Probe):
    """Returns the skip of each sum, and notes the branches' outputs."""

    def __init__(self, block: AdaptedBlock, x: Tensor) -> None:
        super().__init__(block, x)
        self.source = x.detach().requires_grad_(x.is_floating_point())
        self.given = self.source.clone()
        self.terms: list[Tensor] = []
        self.skip: Tensor | None = None

    def inner(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        self.skip = right if skip else left
        return self._noted(left if skip else right)

    def join(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        if self.skip is not None:
            self._noted(left + right)
            found, self.skip = self.skip, None
            return found
        self._noted(left if skip else right)
        return right if skip else left

    def _noted(self, f: Tensor) -> Tensor:
        self.terms.append(f)
        return f

    def end(self, output: Any) -> Any:
        stream = self._stream(output)
        name = type(self.block).__name__
        if not self.terms:
            raise Unproven(f"{name} runs without its additions")
        terms = [each for each in self.terms if each.requires_grad]
        if stream.requires_grad and terms:
            for gradient in torch.autograd.grad(_sum(stream), terms, allow_unused=True):
                if gradient is not None and bool(gradient.any()):
                    raise Unproven(f"{name} adds a branch that was not found")
        if self.block.rskip_returns_input and not torch.equal(stream.reshape(self.source.shape), self.source):
            raise Unproven(f"{name} does not return its input without its branches")
        return replaced(output, self.block.rskip_route.slot, stream.detach())


class Branch(_Probe):
    """Returns a constant in place of each sum."""

    def __init__(self, block: AdaptedBlock, x: Tensor) -> None:
        super().__init__(block, x)
        self.source = x.detach().requires_grad_(x.is_floating_point())
        self.given = self.source.clone()

    def join(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        return torch.full_like(left, 0.5).detach()

    inner = join

    def end(self, output: Any) -> Any:
        stream = self._stream(output)
        if stream.requires_grad:
            (gradient,) = torch.autograd.grad(_sum(stream), self.source, allow_unused=True)
            if gradient is not None and bool(gradient.any()):
                raise Unproven(f"{type(self.block).__name__} passes its input on beside its additions")
        return replaced(output, self.block.rskip_route.slot, stream.detach())


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Restores the model's buffers, gradients' absence and modes, and the random state, after runs."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(each, each.detach().clone()) for each in model.buffers() if not each.is_meta]
    state, arrays = random.getstate(), np.random.get_state()
    devices = {each.device for each in model.parameters() if each.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=[each.index or 0 for each in devices]):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(arrays)
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def evaluated(model: nn.Module, run: Callable[[], Any]) -> list[Tensor]:
    """The outputs in evaluation."""
    model.eval()
    _seed()
    with torch.no_grad():
        return floats(run())


def trained(
    model: nn.Module, run: Callable[[], Any], watched: Sequence[nn.Parameter]
) -> list[Tensor | None] | None:
    """The outputs in training, and the gradients of some parameters; None if the model does not run in training.

    Some models train only with labels, or with larger batches.
    """
    with undisturbed(model), torch.enable_grad():
        model.train()
        _seed()
        try:
            outputs = [each for each in floats(run()) if each.requires_grad]
            wanted = [each for each in watched if each.requires_grad]
            gradients: Sequence[Tensor | None] = ()
            if outputs and wanted:
                total = torch.stack([each.float().square().sum() for each in outputs]).sum()
                gradients = torch.autograd.grad(total, wanted, allow_unused=True)
        except Exception:
            return None
        return [*(each.detach() for each in outputs), *gradients]


def run_probe(
    kind: type[Own], model: nn.Module, run: Callable[[], Any], blocks: Mapping[int, str], *, trains: bool
) -> None:
    """Runs the model until every block was probed: in training if it trains, and in evaluation.

    Some models leave out blocks in training.

    :param blocks: their names, by the ids of their modules.
    """
    kind.seen.clear()
    for mode in (True, False) if trains else (False,):
        model.train(mode)
        with torch.enable_grad():
            try:
                run()
            except Unproven:
                raise
            except Exception as error:
                raise Unproven(f"the model does not run without them: {str(error).splitlines()[0][:150]}") from error
        if blocks.keys() <= kind.seen:
            return
    missed = next(name for key, name in blocks.items() if key not in kind.seen)
    raise Unproven(f"{missed} does not run its additions")


def compare(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> None:
    """Raises Unproven unless all are equal bit by bit."""
    if len(found) != len(expected):
        raise Unproven("the model returns something else")
    for mine, theirs in zip(found, expected, strict=True):
        if mine is None or theirs is None:
            if mine is not theirs:
                raise Unproven("other parameters get gradients")
        elif not torch.equal(torch.nan_to_num(mine), torch.nan_to_num(theirs)):
            raise Unproven("outputs or gradients change")


def floats(output: Any) -> list[Tensor]:
    """The floating-point tensors of a model's output."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        return [each for value in output.values() for each in floats(value)]
    if isinstance(output, (tuple, list)):
        return [each for value in output for each in floats(value)]
    return []


def _sum(stream: Tensor) -> Tensor:
    """A sum with unequal factors, since a normalisation's outputs have a constant sum."""
    factors = torch.arange(stream.numel(), device=stream.device, dtype=torch.float32).cos()
    return (stream.float().reshape(-1) * factors).sum()


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # speech models draw their masks from it
