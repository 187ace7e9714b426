"""Every connection with DDP and FSDP2 on two processes, `python -m tests.connections.two_processes RANK STORE`.

Each has half of the batch. Gradients must be those of the whole batch on one process, and a sharded model that starts
on the meta device must start as one that is built.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.connections.every_connection import FAMILIES, specs_on_text
from tests.connections.stack import FEATURES, Stack, branch_inputs


class Block(nn.Module):
    """What a model shards: a branch with its connection."""

    def __init__(self, connection: nn.Module) -> None:
        super().__init__()
        self.connection = connection
        self.branch = nn.Linear(FEATURES, FEATURES)

    def forward(self, state: Any) -> Any:
        connection: Any = self.connection
        given, kept = connection.before(state)
        return connection.after(kept, torch.tanh(self.branch(branch_inputs(connection, given, kept))))


class Model(nn.Module):
    def __init__(self, spec: str, layers: int) -> None:
        super().__init__()
        whole = Stack(spec, layers=layers).float()
        self.blocks = nn.ModuleList(map(Block, whole.connections))
        self.stack, self.closing = whole.stack, whole.closing

    def forward(self, x: Tensor) -> Tensor:
        state = self.stack.enter(x)
        for block in self.blocks:
            state = block(state)
        y: Tensor = self.closing(self.stack.leave(state))
        return y


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    model(x).square().sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None for gradient in found)
    return [getattr(each, "full_tensor", lambda each=each: each)() for each in found]  # type: ignore[misc]


def shard(model: Model) -> Model:
    mesh = init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def check(spec: str, rank: int, layers: int) -> None:
    torch.manual_seed(0)
    built = Model(spec, layers)
    exact = copy.deepcopy(built).double()
    x = torch.randn(2, 3, FEATURES, dtype=torch.float64)
    expected = [gradient / 2 for gradient in gradients(copy.deepcopy(exact), x)]
    for trained in (DistributedDataParallel(copy.deepcopy(exact)), shard(exact)):
        for found, wanted in zip(gradients(trained, x[rank : rank + 1]), expected, strict=True):
            torch.testing.assert_close(found, wanted)

    torch.manual_seed(1)
    other = Model(spec, layers).state_dict()
    with torch.device("meta"):
        anew = shard(Model(spec, layers))
    anew.to_empty(device="cpu")
    for parameter in anew.parameters():
        nn.init.constant_(parameter, float("nan"))
    for module in anew.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for name, parameter in anew.named_parameters():
        found, wanted = parameter.full_tensor(), built.get_parameter(name)  # type: ignore[operator]
        drawn = not torch.equal(wanted, other[name])
        assert found.isfinite().all() if drawn else torch.equal(found, wanted), (spec, name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    own_rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=own_rank, world_size=2)
    for family in FAMILIES:
        for number, each in enumerate(specs_on_text(family)):
            check(each, own_rank, layers=1 if number else 2)
    dist.destroy_process_group()
