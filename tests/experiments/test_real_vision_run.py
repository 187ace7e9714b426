"""A vision recipe through the real programs on the real CIFAR-10: killed, stopped, repeated; two processes."""

from __future__ import annotations

import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rskip.experiments.process import CommandFailed, child_environment, run_logged
from rskip.experiments.record import read_record
from rskip.experiments.vision_commands import train_command

from rskip.experiments.recipe import load_recipe

pytestmark = pytest.mark.slow

RECIPE = """
kind: vision
train:
  dataset: cifar10
  depth: 8
  connection: 2rskip+ln
  batch_size: 32
  iterations: 60
  schedule: one_cycle
  lr: 0.1
  precision: float32
  save_every: 5
"""


@pytest.fixture(scope="module")
def cifar(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds CIFAR-10 as torchvision has it."""
    pytest.importorskip("torchvision")
    folder = tmp_path_factory.mktemp("cifar10")
    (folder / "cifar-10-batches-py").mkdir()
    for packed in (shared / "data" / "cifar10").glob("*.xz"):
        (folder / "cifar-10-batches-py" / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path


def start(project: Path, cifar: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).parent / "rskip"), "run", "mine.yaml", "--gpus", "0", "--mirror", str(cifar)]
    with (project / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [*command, *arguments],
            cwd=project,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for_a_checkpoint(process: subprocess.Popen[bytes], project: Path) -> None:
    while not list(project.glob("runs/*/1/training/checkpoint.pt")):
        assert process.poll() is None, output(project)
        time.sleep(0.02)


def output(project: Path) -> str:
    return (project / "output.txt").read_text()


def test_a_run_killed_and_stopped_in_mid_training_ends_in_a_record_when_repeated(project: Path, cifar: Path) -> None:
    first = start(project, cifar)
    try:
        wait_for_a_checkpoint(first, project)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (project / "results").exists()
    checkpoint = project / "runs/mine/1/training/checkpoint.pt"
    killed_at = torch.load(checkpoint, weights_only=True)["iteration"]

    second = start(project, cifar)
    while torch.load(checkpoint, weights_only=True)["iteration"] == killed_at:
        assert second.poll() is None, output(project)
        time.sleep(0.02)
    second.terminate()
    assert second.wait() == 128 + signal.SIGTERM
    assert not (project / "results").exists()

    third = start(project, cifar, "--publish")
    assert third.wait() == 0, output(project)
    record = read_record(project / "results/mine/1.json")
    assert record.training["pieces"] == 3
    assert [point["iteration"] for point in record.curve] == [60]
    assert record.data["images"] == {"train": 50_000, "test": 10_000}
    assert record.published and record.published["error"] == record.metrics["error"]
    assert record.metrics["error"] < 85, "it learned something: by chance it is 90"


def test_a_training_that_diverges_is_one_line(project: Path, cifar: Path) -> None:
    process = start(project, cifar, "--set", "train.connection=1xskip", "train.lr=1e+30", "train.warmup_lr=1e+30")
    assert process.wait() == 1, output(project)
    lines = output(project).splitlines()
    assert lines[-1].startswith("rskip run: error: rskip failed (exit status 1): rskip vision: error: "), lines[-1]
    assert not (project / "results").exists()


def test_two_processes_are_started_for_two_gpus_and_their_failures_are_one_line(project: Path, cifar: Path) -> None:
    def train(*changes: str, folder: str) -> None:
        recipe = load_recipe(project / "mine.yaml", overrides=["train.iterations=4", *changes])
        command = train_command(recipe, seed=1, output=project / folder, data=cifar, gpus=2, precision="float32")
        log = project / f"{folder}.log"
        run_logged([*command, "--device", "cpu"], log=log, environment=child_environment(processes=2))

    train(folder="two")
    state = torch.load(project / "two" / "checkpoint.pt", weights_only=True)
    assert (state["processes"], state["iteration"]) == (2, 4)
    assert len((project / "two" / "curve.jsonl").read_text().splitlines()) == 1
    with pytest.raises(ValueError, match="could not go on: rskip vision: error: ") as refused:
        train("train.lr=0.2", folder="two")  # another training's folder
    with pytest.raises(CommandFailed, match=re.escape("failed (exit status 1): rskip vision: error: ")) as failed:
        train("train.connection=1xskip", "train.lr=1e+30", "train.warmup_lr=1e+30", folder="diverging")
    assert "\n" not in f"{refused.value}{failed.value}"
    assert json.loads((project / "two" / "run.json").read_text())
