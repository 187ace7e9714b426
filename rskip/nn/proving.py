"""Proves that all residual additions of a model's blocks were replaced, and nothing else, in three probes.

1. Own: each join is the library's sum. Outputs and gradients are equal bit by bit, in evaluation and in training.
2. Skip: each join returns the skip. A block's output no longer depends on its branches; a pre-norm block returns its
   input.
3. Branch: no gradient passes through a join. A block's output no longer depends on its input.

The first alone proves little: any sum that is replaced by a sum is equal.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rskip.nn.adapted import Own, ResidualStream, replaced
from rskip.nn.rewriting import Unprovable


class _Probe(Own):
    """Takes gradients within a block.

    :param ran: the ids of the blocks that ran.
    """

    ran: ClassVar[set[int]] = set()

    def __init__(self, block: ResidualStream, x: Tensor) -> None:
        self.source = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
        super().__init__(block, self.source.clone())
        self.name = type(block).__name__
        self.ran.add(id(block))

    def depends(self, output: Any, values: Sequence[Tensor]) -> bool:
        """Whether the stream in the block's output changes with one of the values."""
        stream = self.stream(output)
        if not (stream.requires_grad and values):
            return False
        # a sum with unequal factors, since a normalisation's outputs have a constant sum
        factors = torch.arange(stream.numel(), device=stream.device, dtype=torch.float32).cos()
        total = (stream.float().reshape(-1) * factors).sum()
        gradients = torch.autograd.grad(total, values, retain_graph=True, allow_unused=True)
        return any(each is not None and bool(each.any()) for each in gradients)

    def stream(self, output: Any) -> Tensor:
        slot = self.block.rskip_route.slot
        stream: Tensor = output if slot is None else output[slot]
        return stream


class Skip(_Probe):
    """Returns the skip of each sum, and notes the branches' outputs."""

    def __init__(self, block: ResidualStream, x: Tensor) -> None:
        super().__init__(block, x.detach())
        self.terms: list[Tensor] = []
        self.skip: Tensor | None = None

    def inner(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        self.skip = right if skip else left
        self.terms.append(left if skip else right)
        return self.terms[-1]

    def join(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        found, self.skip = self.skip, None
        if found is not None:
            self.terms.append(left + right)
            return found
        self.terms.append(left if skip else right)
        return right if skip else left

    def end(self, output: Any) -> Any:
        if not self.terms:
            raise Unprovable(f"{self.name} runs without its additions")
        if self.depends(output, [each for each in self.terms if each.requires_grad]):
            raise Unprovable(f"{self.name} adds a branch that was not found")
        stream = self.stream(output).detach()
        if self.block.rskip_returns_input and not torch.equal(stream.reshape(self.source.shape), self.source):
            raise Unprovable(f"{self.name} does not return its input without its branches")
        return replaced(output, self.block.rskip_route.slot, stream)


class Branch(_Probe):
    """Computes the library's sums, through which no gradient passes while the block's output is looked at."""

    def join(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        total: Tensor = _Sum.apply(left, right)
        return total

    def end(self, output: Any) -> Any:
        former, _Sum.is_closed = _Sum.is_closed, True  # an activation checkpoint may run the block again within this
        try:
            if self.depends(output, [self.source]):
                raise Unprovable(f"{self.name} passes its input on beside its additions")
        finally:
            _Sum.is_closed = former
        return output


class _Sum(torch.autograd.Function):
    """A sum. Gradients pass through it unless it is closed."""

    is_closed = False

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        return left + right

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return (None, None) if _Sum.is_closed else (gradient, gradient)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Restores the model's buffers, gradients' absence and modes, and the random state, after runs."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(each, each.detach().clone()) for each in model.buffers() if not each.is_meta]
    numpy: Any = sys.modules.get("numpy")
    state, arrays = random.getstate(), numpy and numpy.random.get_state()
    devices = {each.device for each in model.parameters() if each.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=[each.index or 0 for each in devices]):
            yield
    finally:
        random.setstate(state)
        if numpy:
            numpy.random.set_state(arrays)
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, value in buffers:
                if not torch.equal(buffer, value):  # one that is expanded can't be written
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
            outputs = floats(run())
            losses = [each.float().square().sum() for each in outputs if each.requires_grad]
            wanted = [each for each in watched if each.requires_grad]
            gradients: Sequence[Tensor | None] = ()
            if losses and wanted:
                gradients = torch.autograd.grad(torch.stack(losses).sum(), wanted, allow_unused=True)
        except Unprovable:
            raise
        except Exception:
            return None
        return [*(each.detach() for each in outputs), *gradients]


def prove(
    model: nn.Module,
    run: Callable[[], Any],
    blocks: Mapping[str, nn.Module],
    evaluation: Sequence[Tensor],
    training: Sequence[Tensor | None] | None,
    watched: Sequence[nn.Parameter],
) -> None:
    """Runs the probes: skips in evaluation, and branches in training, so that an addition in only one of them is seen.

    :param blocks: the adapted blocks, by name.
    :param evaluation: what `evaluated` gave before, and `training`, what `trained` gave.
    :raises Unprovable: a probe fails.
    """

    def use(passage: type[Own]) -> None:
        for block in blocks.values():
            block.__dict__["rskip_passage"] = passage

    use(Own)
    compare(evaluated(model, run), evaluation)
    for probe in (Branch, Skip):
        use(probe)
        _Probe.ran.clear()
        if probe is Branch and training is not None:
            probed = trained(model, run, watched)
            try:
                compare(probed or [], training)
            except Unprovable:
                if probed is None:
                    raise
                use(Own)  # the probe may have added up gradients in another order
                compare(trained(model, run, watched) or [], training)
                use(probe)
        _reach_all(model, run, blocks)  # some models leave out blocks in training


def _reach_all(model: nn.Module, run: Callable[[], Any], blocks: Mapping[str, nn.Module]) -> None:
    """Runs the model in evaluation, with gradients, unless every block has been probed."""
    missed = [name for name, block in blocks.items() if id(block) not in _Probe.ran]
    if not missed:
        return
    model.eval()
    with torch.enable_grad():
        try:
            run()
        except Unprovable:
            raise
        except Exception as error:
            raise Unprovable(f"the model does not run without them: {str(error).splitlines()[0][:150]}") from error
    for name in missed:
        if id(blocks[name]) not in _Probe.ran:
            raise Unprovable(f"{name} does not run its additions")


def compare(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> None:
    """Raises Unprovable unless all are equal bit by bit."""
    if len(found) != len(expected):
        raise Unprovable("the model returns something else")
    for mine, theirs in zip(found, expected, strict=True):
        if mine is None or theirs is None:
            if mine is not theirs:
                raise Unprovable("other parameters get gradients")
        elif not torch.equal(torch.nan_to_num(mine), torch.nan_to_num(theirs)):
            raise Unprovable("outputs or gradients change")


def floats(output: Any) -> list[Tensor]:
    """The floating-point tensors of a model's output."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        return [each for value in output.values() for each in floats(value)]
    if isinstance(output, (tuple, list)):
        return [each for value in output for each in floats(value)]
    return []


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    if "numpy" in sys.modules:  # speech models draw their masks from it
        sys.modules["numpy"].random.seed(0)
