"""A vision recipe through the real programs on the real CIFAR-10: killed in mid-training and repeated.

The second attempt is faster: it trains in the test's process, and tests on a tenth of the images.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.records import read_record
from rskip.vision.data import ImageSet, load_cifar

RECIPE = """
kind: vision
train:
  dataset: cifar10
  depth: 8
  connection: 2rskip+ln
  batch_size: 32
  iterations: 12
  schedule: one_cycle
  lr: 0.1
  precision: float32
  save_every: 4
"""


@pytest.mark.slow
def test_a_run_that_was_killed_in_mid_training_ends_in_a_record_when_it_is_repeated(
    unpacked_cifar: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "mine.yaml").write_text(RECIPE)

    arguments = ["run", "mine.yaml", "--gpus", "0", "--mirror", str(unpacked_cifar("cifar10"))]
    command = [str(Path(sys.executable).parent / "rskip"), *arguments]
    with (tmp_path / "output.txt").open("wb") as output:
        first = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        while not Path("runs/mine/1/training/checkpoint.pt").exists():
            assert first.poll() is None, (tmp_path / "output.txt").read_text()
            time.sleep(0.02)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not Path("results").exists()

    def train_here(command: list[str], *, on_poll: Callable[[], None], **_: object) -> None:
        assert main(command[1:]) == 0
        on_poll()

    def load_fewer(name: str, root: Path | None = None, *, train: bool, download: bool = False) -> ImageSet:
        found = load_cifar(name, root, train=train, download=download)
        return found if train else dataclasses.replace(found, images=found.images[::10], labels=found.labels[::10])

    for module in ("rskip.vision.data.run_images", "rskip.vision.training.train"):
        monkeypatch.setattr(import_module(module), "load_dataset", load_fewer)
    monkeypatch.setattr("rskip.tasks.run.run_logged", train_here)
    assert main(arguments) == 0
    record = read_record(Path("results/mine/1.json"))
    assert record.training["pieces"] == 2
    assert [point["iteration"] for point in record.curve] == [12]
    assert record.data["images"] == {"train": 50_000, "test": 1_000}
    assert record.metrics["error"] == pytest.approx(record.curve[-1]["test_error"], abs=1e-3)
