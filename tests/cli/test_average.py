"""`rskip average`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import read_checkpoint
from rskip.cli.main import main


@pytest.fixture
def run(tmp_path) -> Path:
    """A run's folder: epochs 1 to 4 with w = 1, 2, 4, 8 and losses 4, 3, 2, 3; update 500 with w = 16."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    files = {
        "checkpoint1": 4.0,
        "checkpoint2": 3.0,
        "checkpoint3": 2.0,
        "checkpoint4": 3.5,
        "checkpoint_1_500": 5.0,
    }
    for exponent, (name, loss) in enumerate(files.items()):
        model = {"w": torch.tensor([2.0**exponent])}
        cfg = {"model": Namespace(arch="transformer"), "task": {"_name": "translation"}}
        torch.save({"cfg": cfg, "model": model, "extra_state": {"val_loss": loss}}, folder / f"{name}.pt")
    return folder


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--last", "2", "--up-to", "3"], 3.0),
        (["--last", "1", "--by", "update"], 16.0),
        (["--best", "2"], 3.0),
    ],
)
def test_chosen_checkpoints_are_averaged(run, tmp_path, capsys, arguments, expected):
    output = tmp_path / "averaged.pt"
    assert main(["average", *arguments, str(run), "--output", str(output)]) == 0
    written = read_checkpoint(output)
    assert written.model["w"].item() == pytest.approx(expected)
    report = capsys.readouterr().out
    assert report == f"averaged {len(written.averaged_from)}: {' '.join(written.averaged_from)} -> {output}\n"


def test_named_files_to_half_precision_and_back(run, tmp_path):
    files = [str(run / f"checkpoint{epoch}.pt") for epoch in (1, 4)]
    small, back = str(tmp_path / "model.safetensors"), str(tmp_path / "back.pt")
    assert main(["average", "--inputs", *files, "--output", small, "--dtype", "float16"]) == 0
    assert torch.equal(read_checkpoint(small).model["w"], torch.tensor([4.5], dtype=torch.float16))
    assert read_checkpoint(small).averaged_from == ("checkpoint1.pt", "checkpoint4.pt")
    assert main(["average", "--inputs", small, "--output", back]) == 0
    assert torch.equal(read_checkpoint(back).model["w"], torch.tensor([4.5]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--last", "10", "RUN"], "10 epoch checkpoints asked for, but RUN has 4: ask for 1 to 4, or choose by "),
        (["--last", "2"], "--last needs FOLDER, the folder of checkpoints"),
        (["--inputs", "RUN/checkpoint9.pt"], "RUN/checkpoint9.pt: No such file"),
        (["--inputs", "RUN/checkpoint1.pt", "--by", "epoch"], "--by needs --last or --best"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, refused, arguments, message):
    arguments = [argument.replace("RUN", str(run)) for argument in arguments]
    refused(message.replace("RUN", str(run)), "average", "--output", tmp_path / "out.pt", *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]


def test_an_input_is_not_overwritten(run, refused):
    path = run / "checkpoint4.pt"
    refused("is one of the checkpoints to average", "average", "--last", "2", run, "--output", path)
    assert read_checkpoint(path).model["w"].item() == 8.0
