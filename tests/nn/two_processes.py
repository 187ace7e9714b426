"""Adapted models with DDP and FSDP2 on two processes, `python -m tests.nn.two_processes RANK STORE`.

Each process has half of the batch. Gradients must be those of the whole batch on one process.
"""

from __future__ import annotations

import copy
import sys

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rskip.nn import AdaptedBlock, adapt
from tests.nn.test_adapting import WIDTH, draw, timm_vit, torch_encoder, transformers_model

MODELS = {
    "GPT-2": (lambda: transformers_model("gpt2"), torch.arange(14).view(2, 7) + 3),
    "Llama": (lambda: transformers_model("llama"), torch.arange(14).view(2, 7) + 3),
    "ViT": (timm_vit, draw(2, 3, 16, 16).double()),
    "encoder": (torch_encoder, draw(2, 5, WIDTH).double()),
}


def gradients(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    output = model(x)
    getattr(output, "last_hidden_state", output).sin().sum().backward()
    return {
        name.removeprefix("module."): getattr(parameter.grad, "full_tensor", lambda grad=parameter.grad: grad)()  # type: ignore[misc]
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def shard(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (2,))
    for block in model.modules():
        if isinstance(block, AdaptedBlock):
            fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
    for name, (build, inputs) in MODELS.items():
        for spec in ("mhc", "2rskip+ln"):
            torch.manual_seed(0)
            exact = adapt(build(), spec).double().eval()
            expected = gradients(copy.deepcopy(exact), inputs)
            for trained in (DistributedDataParallel(copy.deepcopy(exact)), shard(copy.deepcopy(exact))):
                found = gradients(trained, inputs[rank : rank + 1])
                assert found.keys() == expected.keys(), (name, spec, found.keys() ^ expected.keys())
                for key, wanted in expected.items():
                    torch.testing.assert_close(found[key], wanted / 2)
    dist.destroy_process_group()
