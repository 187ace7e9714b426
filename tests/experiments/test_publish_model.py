"""`rskip zoo publish` on runs whose weights are one tensor: what is published again, and what is left alone."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rskip.experiments.record import Record, read_record, record_path
from safetensors.numpy import save_file

from rskip.cli.main import main
from rskip.experiments.recipe import Recipe, load_recipe
from rskip.files.checksum import sha256_file
from rskip.zoo.registry import read_registry

NAME = "preact_resnet8_2rskip_ln.cifar10"
RECIPE = "{kind: vision, train: {dataset: cifar10, depth: 8, connection: 2rskip+ln}}"
CONFIG = {"format": 1, "dataset": "cifar10", "model": {"depth": 8, "connection": "2rskip+ln", "shortcut": "zero_pad"}}


def fill(folder: Path, recipe: Recipe, *, seed: int, mirror: str | None) -> Record:
    """Stands for `rskip.experiments.vision_publish.fill`."""
    record = read_record(record_path(recipe.run_name, seed))
    if not Path("runs", record.run, str(seed)).is_dir():
        raise FileNotFoundError(f"runs/{record.run}/{seed} is gone: remove {record.path} and run the recipe again")
    weights = folder / "model.safetensors"
    save_file({"weight": np.full(3, seed, dtype=np.float32)}, weights)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    sizes = {"file": weights.name, "bytes": weights.stat().st_size, "sha256": sha256_file(weights)}
    return dataclasses.replace(record, published={**sizes, "error": record.metrics["error"]})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_record: Callable[..., Record]) -> Callable[..., None]:
    """Gives what makes a run of seeds 1, 2 and 10 in the current folder; of `mine`, 2 is a model of the registry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rskip.experiments.vision_kind.fill", fill)

    def make_run(name: str) -> None:
        Path("recipes").mkdir(exist_ok=True)
        Path("recipes", f"{name}.yaml").write_text(RECIPE)
        config = load_recipe(f"recipes/{name}.yaml").config
        for seed in (1, 2, 10):
            metrics = {"error": 8.0 + seed}
            record = make_record(
                recipe=name, run=name, kind="vision", seed=seed, config=config, metrics=metrics, signatures={}
            )
            record.write(record.path)
            Path("runs", name, str(seed)).mkdir(parents=True)

    make_run("mine")
    assert main(["zoo", "publish", "mine", "--seed", "2"]) == 0
    return make_run


def published() -> tuple[int, list[int]]:
    """The seed in checkpoints/mine, whose files and record belong together, and the seeds whose records say so."""
    record = read_record(Path("checkpoints/mine/record.json"))
    entry = read_registry(Path("checkpoints.json"))[NAME]
    assert record.published and record.published["sha256"] == sha256_file(Path("checkpoints/mine/model.safetensors"))
    assert entry.files["model.safetensors"].sha256 == record.published["sha256"]
    assert entry.figures[0].seeds == (record.seed,) and Path("checkpoints/mine/README.md").is_file()
    assert [path.name for path in Path("checkpoints").iterdir()] == ["mine"]
    return record.seed, [seed for seed in (1, 2, 10) if read_record(record_path("mine", seed)).published]


def snapshot() -> dict[str, bytes]:
    """Every file but those of runs/, with its content; nothing that is hidden may be left."""
    assert not list(Path("checkpoints").glob(".*"))
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.parts[0] != "runs"}


def test_the_first_seed_is_published_unless_one_is(project: Callable[..., None]) -> None:
    assert published() == (2, [2])
    assert main(["zoo", "publish", "mine"]) == 0
    assert published() == (2, [2])
    shutil.rmtree("checkpoints/mine")
    assert main(["zoo", "publish", "mine"]) == 0
    assert published() == (1, [1])


def _train_again() -> None:
    record = read_record(record_path("mine", 2))
    dataclasses.replace(record, date="2026-02-02", published=None).write(record.path)


def _kill_before_the_records_are_written() -> None:
    """As it is where publishing seed 1 was killed."""
    shutil.copytree("results", "results_before")
    assert main(["zoo", "publish", "mine", "--seed", "1"]) == 0
    shutil.rmtree("results")
    Path("results_before").rename("results")


@pytest.mark.parametrize(
    ("spoil", "seed"),
    [
        (_train_again, 2),
        (_kill_before_the_records_are_written, 1),
        (lambda: Path("checkpoints/mine").rename("checkpoints/.mine.replaced"), 2),
        (lambda: Path("checkpoints/mine/model.safetensors").write_bytes(b"damaged"), 2),
        (lambda: Path("checkpoints/mine/model.safetensors").unlink(), 2),
        (lambda: Path("checkpoints/mine/record.json").write_text("{"), 1),  # whose it was is not known
    ],
)
def test_what_does_not_fit_its_record_is_published_again_of_the_same_seed(
    project: Callable[..., None], spoil: Callable[[], object], seed: int
) -> None:
    spoil()
    assert main(["zoo", "publish", "mine"]) == 0
    assert published() == (seed, [seed])


def test_a_published_seed_without_a_record_gives_way_to_the_first(project: Callable[..., None]) -> None:
    record_path("mine", 2).unlink()
    assert main(["zoo", "publish", "mine"]) == 0
    assert read_record(Path("checkpoints/mine/record.json")).seed == 1


def test_what_cannot_be_published_again_says_what_to_do(
    project: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    _train_again()
    shutil.rmtree("runs")
    before = snapshot()
    capsys.readouterr()
    assert main(["zoo", "publish", "mine"]) == 2
    assert capsys.readouterr().err == (
        "rskip zoo: error: checkpoints/mine/record.json is none of the records in results/mine: restore "
        "checkpoints/mine and results/mine from version control, or publish the run again, which fails now: "
        "runs/mine/2 is gone: remove results/mine/2.json and run the recipe again\n"
    )
    assert snapshot() == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "config.json").write_text(json.dumps({**CONFIG, "note": 1})),
        lambda folder: (folder / "notes.txt").write_text("mine"),
        lambda folder: (folder / "config.json").unlink(),
    ],
)
def test_a_file_beside_the_weights_that_changed_is_not_taken_for_published(
    project: Callable[..., None], spoil: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot()
    spoil(Path("checkpoints/mine"))
    assert main(["zoo", "publish", "mine"]) == 0  # of the run's own files, which are there
    assert snapshot() == before
    spoil(Path("checkpoints/mine"))
    Path("runs").rename("runs_elsewhere")
    capsys.readouterr()
    assert main(["zoo", "publish", "mine"]) == 2
    error = capsys.readouterr().err
    assert re.match(r"rskip zoo: error: checkpoints/mine/[a-z.]+ is not as checkpoints\.json has it: restore ", error)
    assert Path("checkpoints.json").read_bytes() == before["checkpoints.json"]


def test_a_table_that_cannot_be_filled_in_is_said_before_anything_is_replaced(
    project: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("README.md").write_text("<!-- rskip zoo: begin models -->\n")
    before = snapshot()
    capsys.readouterr()
    assert main(["zoo", "publish", "mine", "--seed", "1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rskip zoo: error: README.md") and error.count("\n") == 1
    assert snapshot() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variant", "Not a word"], "variant is 'Not a word': expected a word of lower-case letters"),
        (["--url", "example.org"], "url is 'example.org': expected an address that begins with https://"),
        (["--variant", "other"], f"{NAME}.other is the model of checkpoints/other: give --variant WORD"),
        (["--variant", "new"], "the models in checkpoints/ take 0.0 MB together: expected at most 0 MB"),
    ],
)
def test_what_is_refused_with_another_seed_leaves_every_byte(
    project: Callable[..., None],
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project("other")
    assert main(["zoo", "publish", "other", "--variant", "other"]) == 0
    if "new" in arguments:
        monkeypatch.setattr("rskip.zoo.publish.MAX_BYTES_IN_ALL", 100)
    before = snapshot()
    capsys.readouterr()
    assert main(["zoo", "publish", "mine", "--seed", "1", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert snapshot() == before


@pytest.mark.parametrize("error", [OSError("no"), KeyboardInterrupt()])
def test_weights_that_are_not_replaced_come_back(
    project: Callable[..., None], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    before, rename = snapshot(), Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == ".mine.building":
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    assert main(["zoo", "publish", "mine", "--seed", "1"]) in (2, 130)
    assert snapshot() == before


def test_records_of_other_runs_are_not_read(project: Callable[..., None]) -> None:
    Path("results/other").mkdir()
    Path("results/other/1.json").write_text("{")
    assert main(["zoo", "publish", "mine", "--seed", "1"]) == 0
    assert published() == (1, [1])


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("", "'' is no run: expected the name of a folder in results/"),
        ("..", "'..' is no run: expected"),
        ("/", "'/' is no run: expected"),
        ("results/mine", "'results/mine' is no run: expected"),
        ("mnie", "results/mnie has no record (did you mean 'mine'?): give a run that has, or run it first"),
        ("numbers", "results/numbers has no record: run it first, `rskip run RECIPE`"),
    ],
)
def test_what_names_no_run_is_refused(
    project: Callable[..., None], capsys: pytest.CaptureFixture[str], run: str, message: str
) -> None:
    before = snapshot()
    capsys.readouterr()
    assert main(["zoo", "publish", run]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rskip zoo: error: {message}") and error.count("\n") == 1
    assert snapshot() == before
