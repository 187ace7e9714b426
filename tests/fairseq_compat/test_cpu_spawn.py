"""Patch of `--cpu --distributed-world-size 2` without torchrun; test_fairseq_programs.py trains in two processes."""

from __future__ import annotations

from pathlib import Path

SPAWN = """
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed.utils import call_main
from marks import leave_mark

if __name__ == "__main__":
    flags = ["--cpu", "--distributed-world-size", "2", "--distributed-backend", "gloo"]
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", "transformer", *flags])
    call_main(convert_namespace_to_omegaconf(args), leave_mark)
"""

MARKS = """
from pathlib import Path
import torch

def leave_mark(cfg):
    total = torch.tensor([cfg.distributed_training.distributed_rank + 1])
    torch.distributed.all_reduce(total)
    Path(f"rank-{cfg.distributed_training.distributed_rank}").write_text(str(total.item()))
"""


def test_asserts_on_devices_without_the_patch(python, tmp_path: Path):
    (tmp_path / "marks.py").write_text(MARKS)
    process = python(SPAWN, without="cpu-spawn", CUDA_VISIBLE_DEVICES="")
    assert process.returncode == 1
    assert "world size is 2 but have 0 available devices" in process.stderr
