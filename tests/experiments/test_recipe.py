"""Loading recipes: what they resolve to, overrides, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rskip.experiments.kinds import KINDS
from rskip.experiments.results_table import COLUMNS

from rskip.experiments.recipe import SETTINGS_BY_KIND, PaperFigure, load_recipe

RECIPE = """
kind: translation
corpus: numbers-en-de
train:
  arch: transformer_rskip_ln_tiny
  lr: 5e-3
  max-epoch: 12
  bf16: true
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_the_config_is_everything_with_defaults_filled_in(write) -> None:
    recipe = load_recipe(write(RECIPE + "generate: {beam: 5}\nprepare: {pairs: 300}\n"))
    assert recipe.run_name == recipe.name == "mine"
    assert recipe.config == {
        "kind": "translation",
        "corpus": "numbers-en-de",
        "prepare": {"subwords": "bpe", "size": 500, "pairs": 300, "seed": 1},
        "train": {"arch": "transformer_rskip_ln_tiny", "lr": 0.005, "max-epoch": 12, "bf16": True},
        "average": {"last": 10},
        "generate": {"beam": 5},
        "evaluate": {"split": "test"},
    }


def test_what_does_not_change_the_result_is_not_in_the_config(write) -> None:
    plain = load_recipe(write(RECIPE))
    told = load_recipe(
        write(
            RECIPE + "description: x\nshow: 3\nexpected: {sacrebleu: 38, minutes: 4, machine: m}\n"
            "paper: [{bleu: 31.45, table: rSkip Table 2}]\n"
        )
    )
    assert told.config == plain.config
    assert told.expected.metrics == {"sacrebleu": 38}
    assert told.paper == (PaperFigure(bleu=31.45, table="rSkip Table 2"),)
    assert (told.paper[0].measure, told.paper[0].figure) == ("BLEU", 31.45)
    assert (told.expected.minutes, told.expected.machine, told.show) == (4, "m", 3)


def test_overrides_change_the_config_and_name_another_run(write) -> None:
    path = write(RECIPE)
    recipe = load_recipe(path, overrides=["train.lr=3e-3", "average.last=2"])
    assert recipe.config["train"]["lr"] == 0.003
    assert recipe.config["average"] == {"last": 2}
    assert recipe.overrides == {"train.lr": 0.003, "average.last": 2}
    # sha256 of {"average.last":2,"train.lr":0.003}
    assert recipe.run_name == "mine-54661a6c"
    assert load_recipe(path, overrides=["average.last=2", "train.lr=0.003"]).run_name == recipe.run_name
    assert load_recipe(path, overrides=["train.lr=0.004"]).run_name != recipe.run_name


def test_an_override_that_changes_nothing_is_the_recipe_itself(write) -> None:
    recipe = load_recipe(write(RECIPE), overrides=["train.lr=0.005", "show=9", "description=other"])
    assert recipe.run_name == "mine"
    assert recipe.show == 9


VISION = """
kind: vision
train: {dataset: cifar100, depth: 20, connection: 2.0rskip+ln, iterations: 100}
"""


def test_a_vision_recipe_is_its_training_with_defaults_filled_in(write) -> None:
    recipe = load_recipe(write(VISION + "paper: [{accuracy: 94.05, table: SAS Table 4}]\n"), overrides=["train.lr=0.2"])
    train = recipe.settings.train
    assert (train.dataset, train.depth, train.connection) == ("cifar100", 20, "2rskip+ln")
    assert (train.iterations, train.lr, train.momentum) == (100, 0.2, 0.9)
    assert recipe.config == {"kind": "vision", "train": train.to_dict()}
    assert recipe.overrides == {"train.lr": 0.2} and recipe.run_name.startswith("mine-")
    assert (recipe.paper[0].measure, recipe.paper[0].figure) == ("accuracy, %", 94.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "a recipe is a mapping"),
        ("kind: translatoin\n", "kind is 'translatoin'"),
        ("kind: [a]\n", "kind is ['a']"),
        (RECIPE + "evalute: {split: test}\n", "unknown key evalute; did you mean evaluate?"),
        (RECIPE + "average: {lats: 3}\n", "unknown key average.lats; did you mean last?"),
        (RECIPE + "average: {last: 0}\n", "average.last is 0"),
        (RECIPE + "average: {last: 13}\n", "average.last is 13, but train.max-epoch is 12"),
        (RECIPE + "prepare: {pears: 3}\n", "unknown key prepare.pears; did you mean pairs?"),
        (RECIPE + "prepare: {size: big}\n", "prepare.size is 'big'"),
        (RECIPE + "expected: {sacrebleu: high}\n", "expected.sacrebleu is 'high'"),
        (RECIPE + "show: -1\n", "show is -1"),
        (RECIPE + "generate: {path: x}\n", "generate.path can't be set"),
        (RECIPE + "generate: [beam]\n", "generate is ['beam']"),
        (RECIPE + "  distributed-world-size: 4\n", "train.distributed-world-size can't be set in a recipe: use --gpus"),
        (RECIPE + "  tokens-per-update: 25000\n", "train.max-tokens is None"),
        (RECIPE + "  tokens-per-update: 1e4\n  max-tokens: 1024\n", "train.tokens-per-update is 10000.0"),
        (RECIPE + "  tokens-per-update: 9\n  max-tokens: 9\n  update-freq: 2\n", "train.update-freq can't be"),
        (RECIPE + "  save-interval-updates: 2.5\n", "train.save-interval-updates is 2.5"),
        (
            RECIPE + "  max-update: 900\n  save-interval-updates: 100\n",
            "average.last is 10, but train.max-update is 900 and a checkpoint is written every 100",
        ),
        (RECIPE + "paper: {bleu: 31.45, table: rSkip Table 2}\n", "expected a list such as"),
        (RECIPE + "paper: [{belu: 31.45}]\n", "unknown key paper.belu; did you mean bleu?"),
        (RECIPE + "paper: [{bleu: high, table: rSkip Table 2}]\n", "paper holds"),
        (RECIPE + "paper: [{bleu: 1.0, error: 2.0, table: rSkip Table 2}]\n", "paper holds"),
        (RECIPE + "paper: [{error: 6.02}]\n", "paper holds"),
        (RECIPE + "  seed: 3\n", "train.seed can't be set in a recipe: use --seeds"),
        (RECIPE + "  max_tokens: 3\n", "as max-tokens"),
        (RECIPE + "  --dropout: 0.1\n", "as dropout"),
        (RECIPE + "  adam-betas: [0.9, 0.98]\n", "train.adam-betas is [0.9, 0.98]; expected one value"),
        (RECIPE + "  lr: 1\n", "line 9: not valid YAML: key 'lr' is given twice"),
        (RECIPE + "  dropout: {{ dropout }}\n", "line 9: not valid YAML: a key is a list or a mapping: expected"),
        (RECIPE + "  connection: 2rskpi+ln\n", "train.connection is '2rskpi+ln'"),
        (RECIPE + "  connection: 1.5rskip+ln\n", "integer"),
        (RECIPE + "  decoder-connection: 1xskip+bn\n", "normalises over the batch"),
        (RECIPE.replace("max-epoch: 12", "max-epoch: null"), "train says no end"),
        (RECIPE.replace("numbers-en-de", "nubmers-en-de"), "numbers-en-de"),
        (RECIPE.replace("corpus: numbers-en-de", ""), "corpus is missing"),
        (RECIPE.replace("arch:", "ach:"), "train.arch is missing"),
        (VISION + "corpus: numbers-en-de\n", "unknown key corpus"),
        (VISION.replace("depth: 20", "depth: 22"), "train.depth is 22: expected 6n+2 with basic blocks"),
        (VISION.replace("depth: 20, ", ""), "train.depth is missing"),
        (VISION.replace("iterations", "iteration"), "unknown key train.iteration"),
        ("kind: vision\ntrain: [depth]\n", "train is ['depth']"),
        ("kind: vision\n", "train.dataset is missing"),
        (RECIPE + "average: {last: 3\n", "not valid YAML"),
    ],
)
def test_mistakes_are_one_line_that_names_file_and_key(write, text: str, message: str) -> None:
    path = write(text)
    with pytest.raises(ValueError) as error:
        load_recipe(path)
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lr", "expected key=value"),
        (".lr=3", "expected key=value"),
        ("trian.lr=3", "unknown key trian; did you mean train?"),
        ("kind=vision", "kind can't be overridden"),
        ("corpus.name=x", "corpus is one value"),
        ("train.lr=[", "--set train.lr=[, line 1: not valid YAML"),
    ],
)
def test_mistaken_overrides(write, override: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        load_recipe(write(RECIPE), overrides=[override])
    assert message in str(error.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no recipe"):
        load_recipe(tmp_path / "absent.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"kind: \xff")
    with pytest.raises(ValueError, match="not valid UTF-8 .byte 6."):
        load_recipe(tmp_path / "binary.yaml")


def test_every_kind_of_recipe_can_be_run_and_has_columns_in_tables() -> None:
    assert set(KINDS) == set(SETTINGS_BY_KIND) == {column.kind for column in COLUMNS}
