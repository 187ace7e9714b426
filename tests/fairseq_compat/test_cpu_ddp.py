"""Patch of default DistributedDataParallel on CPU."""

from __future__ import annotations

WRAP = """
import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.models import DistributedFairseqModel

torch.distributed.init_process_group("gloo", init_method="file://" + {file!r}, rank=0, world_size=1)
config = DistributedTrainingConfig()
config.tpu = False
group = torch.distributed.group.WORLD
model = DistributedFairseqModel(config, torch.nn.Linear(2, 2), group, torch.device("cpu"))
model(torch.ones(1, 2)).sum().backward()
print(config.ddp_backend, model.weight.grad.tolist())
torch.distributed.destroy_process_group()
"""


def test_device_ids_are_refused_without_the_patch(python, tmp_path):
    process = python(WRAP.format(file=str(tmp_path / "rendezvous")), without="cpu-ddp")
    assert process.returncode == 1
    assert "DistributedDataParallel device_ids and output_device arguments" in process.stderr


def test_model_on_cpu_is_wrapped(python, tmp_path):
    process = python(WRAP.format(file=str(tmp_path / "rendezvous")))
    assert process.stdout == "pytorch_ddp [[1.0, 1.0], [1.0, 1.0]]\n", process.stderr
