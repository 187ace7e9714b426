"""scripts/average_checkpoints.py: fairseq's flags."""

from __future__ import annotations

import runpy
import sys

import pytest
import torch

from rskip.checkpoint import read_checkpoint


@pytest.fixture
def script(root, monkeypatch):
    """Runs the script with arguments; returns its exit status."""

    def run(*arguments) -> int:
        path = root / "scripts" / "average_checkpoints.py"
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_status:
            runpy.run_path(str(path), run_name="__main__")
        return exit_status.value.code

    return run


@pytest.fixture
def run_folder(save_fairseq, tmp_path):
    """Epochs 1 to 4 with w = 1, 2, 4, 8; updates 100 and 200 with w = 16, 32; two best with w = 64, 128."""
    files = [f"checkpoint{epoch}.pt" for epoch in (1, 2, 3, 4)]
    files += ["checkpoint_1_100.pt", "checkpoint_2_200.pt"]
    files += ["checkpoint.best_loss_9.1000.pt", "checkpoint.best_loss_10.2000.pt"]
    for exponent, name in enumerate(files):
        save_fairseq(f"run/{name}", {"w": torch.tensor([2.0**exponent])})
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--num-epoch-checkpoints", 2], 6.0),
        (["--num-epoch-checkpoints", 2, "--checkpoint-upper-bound", 3], 3.0),
        (["--num-update-checkpoints", 2], 24.0),
        (["--num-update-checkpoints", 1, "--checkpoint-upper-bound", 150], 16.0),
        (["--num-best-checkpoints", 1], 64.0),
    ],
)
def test_flags_choose_what_fairseqs_do(script, run_folder, tmp_path, capsys, flags, expected):
    output = tmp_path / "averaged.pt"
    assert script("--inputs", run_folder, "--output", output, *flags) == 0
    assert read_checkpoint(output).model["w"].item() == expected
    assert f"Finished writing averaged checkpoint to {output}" in capsys.readouterr().out
