"""Where a training's model is compiled unless somebody says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rskip.vision.training import TrainingSettings, compilation
from rskip.vision.training.compilation import worth_compiling

CPU = torch.device("cpu")
LONG = TrainingSettings(precision="bfloat16")


@pytest.fixture
def gains(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine where it gains."""
    monkeypatch.setattr(compilation, "multiplies_bfloat16_in_tiles", lambda: True)
    monkeypatch.setattr(compilation.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.delenv("CXX", raising=False)
    return monkeypatch


def test_it_is_for_long_bfloat16_trainings_of_one_process_on_a_cpu(gains: pytest.MonkeyPatch) -> None:
    assert worth_compiling(LONG, CPU)
    assert worth_compiling(TrainingSettings(precision="bfloat16", epochs=30, milestones=()), CPU)
    short = TrainingSettings(precision="bfloat16", iterations=1000, milestones=())
    for settings, device, processes in (
        (short, CPU, 1),
        (TrainingSettings(precision="bfloat16", epochs=2, milestones=()), CPU, 1),
        (TrainingSettings(), CPU, 1),
        (LONG, torch.device("cuda:0"), 1),
        (LONG, CPU, 2),
    ):
        assert not worth_compiling(settings, device, processes=processes), (settings, device, processes)


def test_it_needs_a_processor_with_amx_and_a_compiler(
    gains: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    gains.setattr(compilation.shutil, "which", asked.append)
    assert not worth_compiling(LONG, CPU)
    gains.setenv("CXX", "/opt/clang++")
    assert not worth_compiling(LONG, CPU)
    assert asked == ["g++", "/opt/clang++"]
    gains.setattr(compilation.shutil, "which", lambda program: program)
    assert worth_compiling(LONG, CPU)
    gains.setattr(compilation, "multiplies_bfloat16_in_tiles", lambda: False)
    assert not worth_compiling(LONG, CPU)
