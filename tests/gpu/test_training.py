"""fairseq trains our models on GPUs: a resumed run equals an unbroken one, several processes go on as one does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("fairseq", reason="needs fairseq: run `rskip setup-fairseq`")
from rskip.checkpoint import read_checkpoint  # noqa: E402

MODEL = [
    "--arch", "transformer_rskip_ln_tiny", "--encoder-embed-dim", "32", "--decoder-embed-dim", "32",
    "--share-all-embeddings", "--optimizer", "adam", "--adam-eps", "1e-4", "--lr", "5e-3", "--lr-scheduler", "fixed",
    "--criterion", "rskip_label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--max-tokens", "200",
    "--seed", "3", "--num-workers", "0", "--no-epoch-checkpoints", "--no-progress-bar",
]  # fmt: skip


@pytest.fixture
def train(reversed_words: Path, own_process):
    """Trains in processes of their own; gives the last checkpoint's parameters."""

    def run(folder: Path, *flags: str, processes: int = 1) -> dict[str, torch.Tensor]:
        program = str(Path(sys.executable).parent / "fairseq-train")
        command = [str(reversed_words / "bin"), "--user-dir", "rskip", "--save-dir", str(folder), *MODEL, *flags]
        launch = ["torchrun", "--standalone", "--nproc_per_node", str(processes), program]
        process = own_process(*launch, *command, folder=folder.parent)
        assert process.returncode == 0, process.stderr[-3000:]
        return read_checkpoint(folder / "checkpoint_last.pt").model

    return run


def assert_equal(found, expected, atol):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name].cpu(), tensor.cpu(), rtol=0, atol=atol, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [[], ["--bf16"], ["--fp16"], ["--compile-layers"]], ids=str)
def test_a_resumed_run_equals_an_unbroken_one(precision, train, tmp_path):
    flags = [*precision, "--dropout", "0.2"]
    unbroken = train(tmp_path / "unbroken", *flags, "--max-update", "15")
    train(tmp_path / "resumed", *flags, "--max-update", "8")  # ends inside an epoch
    # sums of a GPU's atomic additions differ in their last bits from run to run
    assert_equal(train(tmp_path / "resumed", *flags, "--max-update", "15"), unbroken, atol=1e-2 if precision else 1e-4)


@pytest.mark.slow
def test_processes_on_all_gpus_go_on_as_one_does(train, tmp_path):
    """By NCCL, which a single GPU's process uses too under torchrun."""
    count = torch.cuda.device_count()
    flags = ["--dropout", "0", "--max-tokens", "100", "--max-epoch", "2"]
    one = train(tmp_path / "one", *flags, "--update-freq", str(count))
    several = train(tmp_path / "several", *flags, "--distributed-backend", "nccl", processes=count)
    assert_equal(several, one, atol=1e-3)
