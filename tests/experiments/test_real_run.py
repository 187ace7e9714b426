"""A recipe through the real programs: killed in mid-training, repeated, checked against what they wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rskip.experiments.record import read_record
from rskip.experiments.training_precision import choose_precision

from rskip.checkpoint import read_checkpoint

RECIPE = """
kind: translation
corpus: numbers-en-de
prepare: {pairs: 400, size: 100}
train:
  arch: transformer_rskip_ln_tiny
  encoder-layers: 1
  decoder-layers: 1
  share-all-embeddings: true
  optimizer: adam
  lr: 1e-3
  lr-scheduler: fixed
  criterion: label_smoothed_cross_entropy
  label-smoothing: 0.1
  max-tokens: 1000
  max-epoch: 4
  bf16: true
average: {last: 2}
generate: {beam: 1, max-len-a: 0, max-len-b: 10, max-tokens: 8000}
"""


def _run(folder: Path) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).parent / "rskip"), "run", "mine.yaml"]
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.mark.slow
def test_a_run_killed_in_mid_training_and_repeated_ends_in_a_record(tmp_path: Path) -> None:
    pytest.importorskip("fairseq")
    (tmp_path / "mine.yaml").write_text(RECIPE)
    first = _run(tmp_path)
    second_epoch = tmp_path / "runs/mine/1/checkpoints/checkpoint2.pt"
    try:
        while not second_epoch.exists():
            assert first.poll() is None, (tmp_path / "output.txt").read_text()
            time.sleep(0.05)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (tmp_path / "results").exists()
    assert _run(tmp_path).wait() == 0, (tmp_path / "output.txt").read_text()

    record = read_record(tmp_path / "results/mine/1.json")
    assert record.training["pieces"] == 2
    assert record.training["precision"] == choose_precision({"bf16": True}, gpus=0)
    epochs = [(epoch["epoch"], epoch["update"]) for epoch in record.curve]
    assert [number for number, _ in epochs] == [1, 2, 3, 4]
    assert [update for _, update in epochs] == [epochs[0][1] * number for number in (1, 2, 3, 4)]
    losses = [epoch["valid_loss"] for epoch in record.curve]
    assert losses == sorted(losses, reverse=True)

    checkpoints = tmp_path / "runs/mine/1/checkpoints"
    assert {path.name for path in checkpoints.glob("checkpoint?.pt")} == {"checkpoint3.pt", "checkpoint4.pt"}
    averaged = read_checkpoint(tmp_path / "runs/mine/1/averaged.pt").model
    last = [read_checkpoint(checkpoints / f"checkpoint{number}.pt").model for number in (3, 4)]
    name = "decoder.embed_tokens.weight"
    assert torch.allclose(averaged[name], (last[0][name] + last[1][name]) / 2)
    trained = {
        id(tensor): tensor.numel() for name, tensor in averaged.items() if name.endswith(("weight", "bias"))
    }
    assert record.parameters == sum(trained.values())
