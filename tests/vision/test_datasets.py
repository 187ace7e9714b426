"""A loader and a row of DATASETS are all that a new dataset needs: it is trained, evaluated, analysed and published."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOADER = """
import torch
from rskip.vision.data.loader import ImageSet
from rskip.vision.datasets import DATASETS


def load(name, root=None, *, train, download=False):
    drawn, count = DATASETS[name], 20 if train else 12
    generator = torch.Generator().manual_seed(count)
    pixels = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return ImageSet(pixels, torch.arange(count) % 3, drawn.classes, drawn.mean, drawn.std)


def checksums(name):
    return {"drawn.bin": "0" * 32}
"""
PROGRAM = """
from pathlib import Path

from rskip.vision.datasets import DATASETS, Dataset

DATASETS["drawn"] = Dataset(
    load="loader:load", checksums="loader:checksums", folder="drawn-files", first_file="drawn.bin",
    classes=("cow", "ant", "bee"), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1), terms="drawn by a test",
)  # before the settings are defined, as if the row were in the file

import rskip
import rskip.tasks.run
from rskip.cli.main import main


def run_here(command, *, on_poll, **_):
    assert main(command[1:]) == 0
    on_poll()


rskip.tasks.run.run_logged = run_here
Path("drawn-files").mkdir()
assert main(["run", "recipes/mine.yaml", "--gpus", "0", "--mirror", ".", "--publish"]) == 0
assert main(["vision", "evaluate", "runs/mine/1/training", "--dataset", "drawn"]) == 0
assert main(["analyse", "gradients", "runs/mine/1/training", "--examples", "4"]) == 0
assert main(["zoo", "publish", "mine"]) == 0
assert "drawn by a test" in Path("checkpoints/mine/README.md").read_text()
classifier = rskip.load("runs/mine/1/training")
assert classifier.classes == ("cow", "ant", "bee") and classifier.transforms().mean == (0.5, 0.4, 0.3)
"""
RECIPE = """
kind: vision
train: {dataset: drawn, depth: 8, connection: 2rskip+ln, batch_size: 10, epochs: 1, warmup_iterations: 0}
"""


def test_a_row_is_all_that_a_dataset_needs(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    (tmp_path / "loader.py").write_text(LOADER)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").write_text(RECIPE)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"a dataset needs more than its row in rskip/vision/datasets.py: {done.stderr}"
