"""`rskip run` of a language model's recipe: stages, record, publishing. The training is a real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import yaml

import rskip
from rskip.cli.main import main
from rskip.corpora import TEXT_CORPORA
from rskip.corpora.corpus import TextCorpus, UpstreamFile
from rskip.files.checksum import sha256_file
from rskip.language_modeling.data import load_data
from rskip.language_modeling.generator import TextGenerator
from rskip.language_modeling.run import METRICS
from rskip.records import read_record
from rskip.tasks import find_task
from rskip.tasks.run import Run
from rskip.zoo.loading import load_entry
from rskip.zoo.registry import read_registry


@pytest.fixture
def project(prepared: Path, small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with a recipe; the command of a training is called in this process."""
    monkeypatch.chdir(tmp_path)

    def run_here(command: list[str], *, log: Path, on_poll: Callable[[], None], **_: object) -> None:
        with log.open("a") as file, redirect_stderr(file):
            assert main(command[1:]) == 0
        on_poll()

    monkeypatch.setattr("rskip.tasks.run.run_logged", run_here)
    recipe = {"kind": "language_modeling", "data": str(prepared), "train": small, "show": 1, "probe": {"every": 5}}
    Path("mine.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


def test_a_run_leaves_a_record_and_a_model(project: Path, prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mine.yaml", "--gpus", "0", "--seeds", "3"]) == 0
    printed = capsys.readouterr().out
    assert "\niteration 11/11   lr " in printed and "--- sample 1" in printed
    record = read_record(project / "results/mine/3.json")
    assert record.kind == "language_modeling" and record.config["train"]["connection"] == "2rskip+ln"
    model = rskip.load(project / "runs/mine/3")
    assert isinstance(model, TextGenerator)
    valid = load_data(prepared).splits["valid"]
    metrics, score = record.metrics, model.score(model.tokens.decode(valid.tolist()))
    assert metrics["loss"] == pytest.approx(score.nats_per_token, abs=1e-4)
    assert metrics["loss"] == pytest.approx(record.curve[-1]["valid_loss"], abs=1e-4)
    assert metrics["perplexity"] == pytest.approx(score.perplexity, abs=1e-3)
    halves = [metrics["loss_first_half"], metrics["loss_second_half"]]
    assert sum(halves) / 2 == pytest.approx(metrics["loss"], abs=0.01) and halves[0] != halves[1]
    assert record.checkpoint_sha256 == sha256_file(project / "runs/mine/3/training/model.safetensors")
    assert (project / "results/mine/3.probe.jsonl").is_file()
    assert main(["run", "mine.yaml", "--gpus", "0", "--seeds", "3"]) == 0  # nothing to do
    assert main(["generate", "--model", "runs/mine/3", "--length", "5"]) == 0
    (project / "runs/mine/3/evaluation.json").write_text(json.dumps(dict.fromkeys(METRICS, 99.0)))
    for name in ("runs/mine/3/training/model.safetensors", "results/mine/3.json"):
        (project / name).unlink()
    assert main(["run", "mine.yaml", "--gpus", "0", "--seeds", "3"]) == 0  # trained and scored again
    assert read_record(project / "results/mine/3.json").metrics == metrics


def test_a_run_on_a_corpus_is_published_and_loaded_by_name(
    project: Path, prepared: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {"homepage": "https://cats.org", "licence": "public domain", "citation": "Cat (2026): Texts"}
    file = UpstreamFile(name="cats.txt", url="https://cats.org/cats.txt")
    monkeypatch.setitem(TEXT_CORPORA, "cat-text", TextCorpus(name="cat-text", folder="cats", file=file, **about))
    recipe = Path("mine.yaml")
    recipe.write_text(recipe.read_text().replace(f"data: {prepared}", "data: cat-text"))
    assert main(["run", "mine.yaml", "--gpus", "0", "--seeds", "3", "--mirror", str(text.parent)]) == 0
    record = read_record(project / "results/mine/3.json")
    Path("recipes").mkdir()
    recipe.rename("recipes/mine.yaml")  # where a run's recipe is looked for
    again = ["run", "recipes/mine.yaml", "--gpus", "0", "--seeds", "3", "--mirror", str(text.parent)]
    assert main([*again, "--publish"]) == 0
    assert main(["zoo", "publish", "mine", "--seed", "3"]) == 0
    ((name, entry),) = read_registry(Path("checkpoints.json")).items()
    assert name == "gpt2_2x16_2rskip_ln.cat_text" and entry.task == "language_modeling"
    assert entry.figures[0].value == pytest.approx(record.metrics["loss"], abs=1e-4)
    assert f'rskip.load("{name}")' in (Path(entry.folder) / "README.md").read_text()
    model = load_entry(entry, root=project)
    assert isinstance(model, TextGenerator) and model.corpus == "cat-text"


def test_the_commands_of_a_run_train_the_same(project: Path) -> None:
    task = find_task("language_modeling")
    settings = task.read_settings({"data": "shakespeare-char", "train": {"connection": "2rskip+ln", "clip_norm": None}})
    prepare, training = task.work().commands(Run(name="a", seed=2, settings=settings, mirror="m"))
    assert prepare == ["rskip", "prepare", "shakespeare-char", "--output", "data-bin/shakespeare-char", "--mirror", "m"]
    expected = 'rskip lm train data-bin/shakespeare-char --set connection="2rskip+ln" clip_norm=null --seed 2'
    assert " ".join(training) == f"{expected} --output runs/a/2/training --device cpu"


def test_wrong_settings_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for change, told in (
        ("data=nowhere", "unknown corpus 'nowhere'"),
        ("data=multi30k-en-de", "multi30k-en-de has two languages: expected a text: shakespeare-char"),
    ):
        assert main(["run", "mine.yaml", "--gpus", "0", "--set", change]) == 2
        printed = capsys.readouterr().err
        assert told in printed and printed.count("\n") == 1, printed
