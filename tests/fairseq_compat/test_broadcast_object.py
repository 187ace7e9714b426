"""Patch of resuming in several processes; tests/fairseq_plugin/test_training.py does so by torchrun."""

from __future__ import annotations

import pytest

SEND = """
import argparse, os
import torch
from fairseq.distributed import utils
from omegaconf import OmegaConf

rank = 1 if os.fork() == 0 else 0
torch.distributed.init_process_group("gloo", init_method="file://" + {file!r}, rank=rank, world_size=2)
config = OmegaConf.create({{"model": {{"arch": "transformer"}}}})
state = {{"cfg": config, "args": argparse.Namespace(seed=1), "model": [torch.arange(3)]}}
try:
    got = utils.broadcast_object(state if rank == 0 else None, src_rank=0, group=torch.distributed.group.WORLD)
    text = str((got["cfg"] == config, got["args"], got["model"]))
except Exception as error:
    text = str(error)
if rank == 1:
    open("got", "w").write(text)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    ("without", "got"),
    [
        ("broadcast-object", "Unsupported global: GLOBAL omegaconf.dictconfig.DictConfig"),
        ("", "(True, Namespace(seed=1), [tensor([0, 1, 2])])"),
    ],
)
def test_content_of_a_checkpoint_reaches_the_other_rank(python, tmp_path, without, got):
    process = python(SEND.format(file=str(tmp_path / "rendezvous")), without=without)
    assert (tmp_path / "got").exists(), process.stderr
    assert got in (tmp_path / "got").read_text()
