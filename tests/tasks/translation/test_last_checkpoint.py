"""A kill while fairseq copies checkpoint_last.pt must not cost the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from rskip.tasks.translation.training import restore_last_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for epoch in (2, 9, 10):
        torch.save({"epoch": epoch}, tmp_path / f"checkpoint{epoch}.pt")
    torch.save({"epoch": 9}, tmp_path / "checkpoint_last.pt")
    return tmp_path


def _epoch(path: Path) -> int:
    return torch.load(path, weights_only=True)["epoch"]


def test_a_whole_one_is_left_alone(folder: Path) -> None:
    restore_last_checkpoint(folder)
    assert _epoch(folder / "checkpoint_last.pt") == 9


@pytest.mark.parametrize("left", [0, 1, 300])
def test_a_cut_off_one_is_replaced_by_the_newest_epoch(folder: Path, left: int) -> None:
    last = folder / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:left])
    restore_last_checkpoint(folder)
    assert _epoch(last) == 10


@pytest.mark.parametrize(("later", "expected"), [("checkpoint_12_900.pt", 900), ("checkpoint10.pt", 10)])
def test_a_cut_off_one_is_replaced_by_the_newer_of_epoch_and_update(folder: Path, later: str, expected: int) -> None:
    for update in (800, 900):
        torch.save({"epoch": update}, folder / f"checkpoint_12_{update}.pt")
    os.utime(folder / later, ns=(2**62, 2**62))
    (folder / "checkpoint_last.pt").write_bytes(b"PK")
    restore_last_checkpoint(folder)
    assert _epoch(folder / "checkpoint_last.pt") == expected


def test_without_an_epoch_the_training_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_last.pt").write_bytes(b"PK")
    (tmp_path / "checkpoint1.pt.tmp").write_bytes(b"PK")
    restore_last_checkpoint(tmp_path)
    assert list(tmp_path.iterdir()) == []
