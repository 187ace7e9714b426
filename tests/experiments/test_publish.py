"""`rskip zoo publish` and `rskip run --publish` of the toy task: what is published again, and what is left alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rskip.cli.main import main
from rskip.files.checksum import sha256_file
from rskip.records import read_record, record_path
from rskip.tasks import Task
from rskip.tasks.process import CommandFailed
from rskip.zoo.publishing import files_of
from rskip.zoo.registry import read_registry

NAME = "line_1xskip.points"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def runs(project: Path) -> Path:
    """The run `mine` has the seeds 1, 2 and 10 in the current folder; seed 2 is a model of the registry."""
    assert main(["run", "recipes/mine.yaml", "--seeds", "1", "2", "10"]) == 0
    assert main(["zoo", "publish", "mine", "--seed", "2"]) == 0
    return project


def published() -> int:
    """The seed whose weights are in checkpoints/mine, as the entry tells, whose files are those of the folder."""
    (entry,) = (each for each in read_registry(Path("checkpoints.json")).values() if each.folder == "checkpoints/mine")
    assert entry.files == files_of(Path("checkpoints/mine"))
    assert entry.checkpoint_sha256 == read_record(record_path("mine", entry.seed)).checkpoint_sha256
    assert entry.figures[0].seeds == (entry.seed,) and Path("checkpoints/mine/README.md").is_file()
    assert [path.name for path in Path("checkpoints").iterdir()] == ["mine"]
    return entry.seed


def snapshot() -> dict[str, bytes]:
    """Every file but those of runs/, with its content; nothing that is hidden may be left."""
    assert not list(Path("checkpoints").glob(".*"))
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.parts[0] != "runs"}


def fails(arguments: list[str], capsys: Capture, *, status: int = 2) -> str:
    """The one line that the command ends with."""
    capsys.readouterr()
    assert main(arguments) == status
    error = capsys.readouterr().err
    assert error.startswith(("rskip zoo publish: error: ", "rskip run: error: ")) and error.count("\n") == 1
    return error


def test_the_tasks_choice_is_published_unless_a_seed_is(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert published() == 2
    assert main(["zoo", "publish", "mine"]) == 0
    assert published() == 2
    shutil.rmtree("checkpoints/mine")
    Path("checkpoints.json").unlink()
    monkeypatch.setattr("toy_task.choose", lambda records: records[-1])
    assert main(["zoo", "publish", "mine"]) == 0
    assert published() == 10
    capsys.readouterr()
    assert main(["run", "recipes/mine.yaml", "--seeds", "2", "1", "--publish"]) == 0
    shown = "checkpoints/mine: seed 1\nadd it to checkpoints.json with: rskip zoo publish mine "
    assert shown in capsys.readouterr().out
    assert published() == 1, "a model of checkpoints.json is replaced with its entry"
    before = snapshot()
    assert main(["zoo", "publish", "mine"]) == 0
    assert snapshot() == before


def train_again() -> None:
    record = read_record(record_path("mine", 2))
    trained = Path("runs/mine/2/trained.safetensors")
    save_file({"weight": np.array([float(load_file(trained)["weight"][0]) + 1e-6])}, trained)
    msgspec.structs.replace(record, checkpoint_sha256=sha256_file(trained)).write(record.path)


SPOILT: dict[str, Callable[[], object]] = {  # what happened since
    "another training": train_again,
    "killed between two renames": lambda: Path("checkpoints/mine").rename("checkpoints/.mine.replaced"),
    "damaged weights": lambda: Path("checkpoints/mine/model.safetensors").write_bytes(b"damaged"),
    "no weights": lambda: Path("checkpoints/mine/model.safetensors").unlink(),
    "a file beside them": lambda: Path("checkpoints/mine/line.json").write_text("{}"),
    "a file more": lambda: Path("checkpoints/mine/notes.txt").write_text("mine"),
    "a file fewer": lambda: Path("checkpoints/mine/line.json").unlink(),
    "no card": lambda: Path("checkpoints/mine/README.md").unlink(),
    "no folder": lambda: shutil.rmtree("checkpoints/mine"),
}


def test_what_the_entry_does_not_tell_of_is_published_again_of_the_same_seed(runs: Path) -> None:
    before = snapshot()
    for what, spoil in SPOILT.items():
        spoil()
        assert main(["zoo", "publish", "mine"]) == 0, what
        assert published() == 2, what
        assert snapshot() == before or what == "another training"
        before = snapshot()
    record_path("mine", 2).unlink()
    assert main(["zoo", "publish", "mine"]) == 0
    assert published() == 1, "without its record a seed gives way"


def test_what_is_refused_leaves_every_byte(
    runs: Path, line_fitting: Task[Any], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    shutil.copy("recipes/mine.yaml", "recipes/other.yaml")
    assert main(["run", "recipes/other.yaml"]) == 0
    assert main(["zoo", "publish", "other", "--variant", "other"]) == 0
    trained = Path("runs/mine/1/trained.safetensors")
    weights, export = trained.read_bytes(), line_fitting.work().export_weights
    recipe = Path("recipes/mine.yaml").read_text()
    publish, before = ["zoo", "publish", "mine", "--seed", "1"], snapshot()

    def refused(*arguments: str, status: int = 2) -> str:
        error = fails([*publish, *arguments], capsys, status=status)
        assert snapshot() == before
        return error

    assert "'Not a word'" in refused("--variant", "Not a word")
    assert "'example.org'" in refused("--url", "example.org")
    assert f"{NAME}.other is the model of checkpoints/other" in refused("--variant", "other")
    assert "results/mine has no run record of seed 3" in fails(["zoo", "publish", "mine", "--seed", "3"], capsys)
    trained.write_bytes(b"x")
    assert "doesn't match results/mine/1.json" in refused()
    trained.unlink()
    assert "is missing or doesn't match results/mine/1.json" in refused()
    trained.write_bytes(weights)
    monkeypatch.setattr("toy_task.export_weights", lambda *arguments: {**export(*arguments), "distance": 0.5})
    assert "has distance 0.50 when read back, the run had 0.03" in refused()

    def fail(*arguments: object) -> None:
        raise CommandFailed("scoring failed")

    monkeypatch.setattr("toy_task.export_weights", fail)
    assert "scoring failed" in refused(status=1)
    monkeypatch.setattr("toy_task.export_weights", export)

    Path("README.md").write_text("<!-- rskip zoo: begin models -->\n")
    before = snapshot()
    assert "README.md" in refused()
    Path("README.md").unlink()
    Path("recipes/mine.yaml").write_text(recipe.replace("lr: 0.1", "lr: 0.2"))
    before = snapshot()
    assert "results/mine/1.json was made with other settings (train.lr: 0.1, now 0.2)" in refused()
    Path("recipes/mine.yaml").unlink()
    before = snapshot()
    assert "no recipe mine, which results/mine/1.json needs: restore it" in refused()


def test_what_names_no_run_is_refused(runs: Path, capsys: Capture) -> None:
    before = snapshot()
    for run, message in {
        "": "'' is not a run: expected an address",
        "..": "'..' is not a run: expected",
        "/": "'/' is not a run: expected",
        "results/mine": "results/results/mine has no run record (did you mean 'mine'?)",
        "mnie": "results/mnie has no run record (did you mean 'mine'?): first run it with",
        "numbers": "results/numbers has no run record: first run it with `rskip run RECIPE`",
    }.items():
        assert message in fails(["zoo", "publish", run], capsys)
    assert snapshot() == before
    Path("results/other").mkdir()
    Path("results/other/1.json").write_text("{")
    assert main(["zoo", "publish", "mine", "--seed", "1"]) == 0, "records of other runs are not read"
    assert published() == 1


def test_killed_anywhere_one_of_the_two_seeds_is_whole_and_publishing_again_ends_well(
    runs: Path, killed_at_rename: Callable[[int, list[str]], bool]
) -> None:
    shutil.copytree(".", "../before", ignore=shutil.ignore_patterns("runs"))
    at = 0
    while killed_at_rename(at := at + 1, ["zoo", "publish", "mine", "--seed", "1"]):
        whole = [folder for folder in Path("checkpoints").glob("*mine*") if (folder / "line.json").is_file()]
        assert any((folder / "model.safetensors").is_file() for folder in whole), at
        assert main(["zoo", "publish", "mine", "--seed", "1"]) == 0
        assert published() == 1, at
        for name in ("checkpoints", "results"):
            shutil.rmtree(name)
        shutil.copytree("../before", ".", dirs_exist_ok=True)
    assert at > 4, "the folder's two renames, card, registry"
    assert published() == 1


def test_records_that_a_network_does_not_show_yet_are_named_and_nothing_is_published(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """With only some of its seeds, a run would publish other weights and other metrics."""
    monkeypatch.setattr("rskip.cli.run.run_sweep", lambda recipes, **options: [])  # other machines run it
    command = ["run", "recipes/mine.yaml", "--seeds", "1", "2", "--ray", "--publish"]
    assert "results/mine has no run record of seeds 1, 2 yet: " in fails(command, capsys)
    assert main(["run", "recipes/mine.yaml", "--seeds", "1"]) == 0
    assert "results/mine has no run record of seed 2 yet: " in fails(command, capsys)
    assert not Path("checkpoints").exists()
    assert main(["run", "recipes/mine.yaml", "--seeds", "2"]) == 0 == main(command)
    assert Path("checkpoints/mine/model.safetensors").is_file()
