"""`rskip train` with small programs (fake_fairseq/) in fairseq's place, and recipes that name a data folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.corpora.record import write_record
from rskip.experiments.recipe import load_recipe
from rskip.files.checksum import sha256_file
from rskip.records import read_record
from rskip.settings.text import read_yaml
from rskip.tasks import find_task

TRAIN = ["train", "data", "--output", "model", "--epochs", "4", "--gpus", "0"]
RECORD = Path("model/results/recipe/1.json")


@pytest.fixture
def project(faked: Path, fakes: Path) -> Path:
    """The current folder, with a data folder."""
    shutil.copytree(fakes / "prepared", faked / "data")
    return faked


def trainings(project: Path) -> int:
    path = project / "calls.jsonl"
    calls = [json.loads(line)["argv"] for line in path.read_text().splitlines()] if path.exists() else []
    return sum("--save-dir" in argv for argv in calls)


def test_it_leaves_a_model_its_recipe_and_its_record(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TRAIN) == 0
    printed = capsys.readouterr().out
    names = ["config.json", "dict.de.txt", "dict.en.txt", "model.safetensors", "recipe.yaml", "results", "runs", "text"]
    assert sorted(path.name for path in (project / "model").iterdir()) == names
    record = read_record(project / RECORD)
    assert record.config["data"] == "data" and record.config["corpus"] == "numbers-en-de"
    assert record.config["data_sha256"] == record.data["files_sha256"]
    assert record.checkpoint_sha256 == sha256_file(project / "model/runs/recipe/1/averaged.pt")
    with pytest.raises(ValueError, match="^recipe was trained on data, which is not a registered corpus: a published "):
        find_task("translation").work().check_publishable(record)
    (command,) = [line for line in printed.splitlines() if line.startswith("fairseq-train data ")]
    assert "--save-dir model/runs/recipe/1/checkpoints" in command and "--max-epoch 4" in command
    assert "epoch   1   train loss 6.000   valid loss 4.500   ppl 8.00   0.2 min, about 30 s left\n" in printed
    assert printed.count("  source     ") == 3
    assert "sacrebleu: nrefs:1|" in printed and "chrf: nrefs:1|" in printed
    assert "rskip translate --model model FILE" in printed


def test_without_its_run_the_model_is_still_the_same_training(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(TRAIN) == 0
    shutil.rmtree(project / "model/runs")
    assert main(["train", "./data/", *TRAIN[2:]]) == 0
    assert trainings(project) == 1
    assert main([*TRAIN, "--seed", "2"]) == 2
    assert "model was started with `rskip train data --epochs 4`," in capsys.readouterr().err


def test_a_moved_folder_is_not_trained_anew_in_its_old_place(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TRAIN) == 0
    (project / "model").rename(project / "moved")
    moved = ["moved" if word == "model" else word for word in TRAIN]
    assert main(moved) == 2
    assert capsys.readouterr().err.endswith(
        "rskip train: error: moved/recipe.yaml has `runs: model/runs`, which is not in moved: if you moved or "
        "copied this folder, write `runs: moved/runs` and `results: moved/results` in that file\n"
    )
    recipe = project / "moved/recipe.yaml"
    recipe.write_text(recipe.read_text().replace(": model/", ": moved/"))
    assert main(moved) == 0
    assert trainings(project) == 1 and not (project / "model").exists()


def test_other_data_in_the_same_folder_is_another_training(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TRAIN) == 0
    record = json.loads((project / "data/corpus.json").read_text())
    (project / "data/reference/test.en").write_text("one\n" * 200)
    (project / "data/corpus.json").unlink()
    write_record(project / "data", {name: value for name, value in record.items() if name not in ("files", "sizes")})
    assert main(TRAIN) == 2
    assert "other settings (data: the content has changed since the earlier run)" in capsys.readouterr().err


def test_a_mistake_before_the_training_leaves_the_folder_free(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, "--set", "average.last=9"]) == 2
    printed = capsys.readouterr().err
    assert "average.last is 9, but train.max-epoch is 4; set average.last to 4 or less" in printed
    assert main(TRAIN) == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--output", "data/model"], "data/model is in the folder of the data"),
        (["--size", "huge"], "--size is 'huge': expected "),
        (["--set", "train.connection=sas"], "train.connection can't be set here; use --connection"),
        (["--set", "train.arch=transformer_sas"], "train.arch can't be transformer_sas here; use --connection sas"),
    ],
)
def test_a_mistake_names_its_flag(
    project: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, *more]) == 2
    assert capsys.readouterr().err.startswith(f"rskip train: error: {said}")
    assert not (project / "model").exists()


def test_a_folder_that_holds_something_else_is_left_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "model").mkdir()
    (project / "model" / "model.safetensors").write_text("mine")
    assert main(TRAIN) == 2
    assert "model holds another model, but no recipe.yaml from `rskip train`" in capsys.readouterr().err
    assert (project / "model" / "model.safetensors").read_text() == "mine"


def test_a_training_that_diverges_leaves_a_record_and_no_model(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_DIVERGE", "2")
    assert main(TRAIN) == 8
    assert "the training diverged: try --set train.lr=0.002" in capsys.readouterr().err
    assert read_record(project / RECORD).diverged
    assert not (project / "model/model.safetensors").exists()


def test_a_dry_run_prints_recipe_and_commands(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "\ndata: data\n" in printed and "\nfairseq-train data --source-lang en --target-lang de " in printed
    assert not (project / "model").exists()


def test_a_recipe_on_a_data_folder_refuses_what_contradicts_it(project: Path) -> None:
    recipe = project / "mine.yaml"
    text = "kind: translation\ndata: data\ntrain: {arch: x, max-tokens: 4000, max-epoch: 3}\naverage: {last: 2}\n"
    recipe.write_text(text)
    config = load_recipe(recipe).config
    assert "prepare" not in config
    recipe.write_text(f"{text}corpus: numbers-en-de\ndata_sha256: {config['data_sha256']}\n")
    assert load_recipe(recipe).config == config
    for line, said in [
        ("corpus: wmt14-en-de", "corpus is 'wmt14-en-de': expected 'numbers-en-de', as data has it"),
        ("data_sha256: abc", "data_sha256 is 'abc': expected "),
        ("evaluate: {split: test2}", "evaluate.split needs test2, but data has only train, valid, test"),
        ("prepare: {size: 9}", "prepare is given, but data is prepared already"),
    ]:
        recipe.write_text(f"{text}{line}\n")
        with pytest.raises(ValueError, match=said):
            load_recipe(recipe)
    recipe.write_text(text.replace("data: data", "data: elsewhere"))
    advice = "the first lines of the recipe may say how to prepare it"
    with pytest.raises(ValueError, match=f"data can't be used: elsewhere does not exist: .*; {advice}$"):
        load_recipe(recipe)
    recipe.write_text(text.replace("data: data\n", ""))
    with pytest.raises(ValueError, match="corpus is missing: expected a name .* or instead of corpus the setting data"):
        load_recipe(recipe)


def test_the_recipe_is_written_as_a_person_writes_one(project: Path) -> None:
    assert main([*TRAIN, "--set", "train.dropout=0.25", "--connection", "sas"]) == 0
    content = read_yaml(project / "model/recipe.yaml")
    assert list(content) == [
        "kind", "description", "runs", "results", "data", "train", "average", "generate", "evaluate", "show",
    ]  # fmt: skip
    assert content["train"]["dropout"] == 0.25 and content["train"]["arch"] == "transformer_sas_tiny"


def test_a_folder_of_fairseq_preprocess_is_scored_on_tokens(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("text", "reference"):
        shutil.rmtree(project / "data" / name)
    (project / "data/corpus.json").unlink()
    assert main(TRAIN) == 0
    printed = capsys.readouterr().out
    assert "rskip translate --model model --text tokens FILE" in printed
    record = read_record(project / RECORD)
    assert record.metrics.keys() == {"tokenised_bleu", "valid_loss", "valid_nll_loss", "valid_ppl"}
    assert record.config["corpus"] == "data" and record.data["files_sha256"] == record.config["data_sha256"]
    assert not (project / "model/text").exists()
