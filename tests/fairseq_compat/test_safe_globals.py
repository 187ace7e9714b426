"""Patch of `Weights only load failed`."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy
import torch

LOAD = """
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
state = load_checkpoint_to_cpu("checkpoint.pt")
print(state["cfg"]["model"].arch, state["extra_state"]["best"], state["extra_state"]["history"].tolist())
"""


def save_checkpoint(folder: Path) -> None:
    """What fairseq 0.12.2 saves, as far as loading looks at it, with a metric that NumPy computed."""
    state = {
        "cfg": {"model": argparse.Namespace(arch="transformer"), "task": {"_name": "translation"}},
        "args": None,
        "model": {"weight": torch.zeros(2)},
        "optimizer_history": [{"num_updates": 1, "criterion_name": "c", "lr_scheduler_state": {}}],
        "extra_state": {
            "best": numpy.float64(0.25),
            "history": numpy.array([1, 2]),
            "train_iterator": {"epoch": 1},
        },
    }
    torch.save(state, folder / "checkpoint.pt")


def test_checkpoints_do_not_load_without_the_patch(python, tmp_path):
    save_checkpoint(tmp_path)
    process = python(LOAD, without="safe-globals")
    assert process.returncode == 1
    assert "Weights only load failed" in process.stderr


def test_checkpoints_load(python, tmp_path):
    save_checkpoint(tmp_path)
    assert python(LOAD).stdout == "transformer 0.25 [1, 2]\n"


def test_scalars_pickled_by_numpy_1_and_2_load(python, tmp_path):
    """The two name the function that restores a scalar differently; protocol 2 is torch.save's."""
    array = numpy.array([0.5, 1.5], dtype=numpy.float32)
    torch.save({"scalar": numpy.int64(3), "array": array}, tmp_path / "either.pt")
    process = python(
        """
        import zipfile, fairseq, torch
        for core in (b"numpy.core", b"numpy._core"):
            with zipfile.ZipFile("either.pt") as old, zipfile.ZipFile("renamed.pt", "w") as new:
                for item in old.infolist():
                    content = old.read(item)
                    if item.filename.endswith("data.pkl"):
                        for name in (b"numpy._core.multiarray", b"numpy.core.multiarray"):
                            content = content.replace(name, core + b".multiarray")
                    new.writestr(item, content)
            content = torch.load("renamed.pt")
            print(content["scalar"], content["array"])
        """
    )
    assert process.stdout == "3 [0.5 1.5]\n" * 2, process.stderr


def test_weights_only_stays_on(python, tmp_path):
    """A pickle that runs a program is refused, and nothing is run."""
    process = python(
        """
        import os, fairseq, torch

        class Program:
            def __reduce__(self):
                return os.mkdir, ("made",)

        torch.save({"model": Program()}, "checkpoint.pt")
        from fairseq.checkpoint_utils import load_checkpoint_to_cpu
        load_checkpoint_to_cpu("checkpoint.pt")
        """
    )
    assert process.returncode == 1
    assert "Weights only load failed" in process.stderr
    assert not (tmp_path / "made").exists()
