"""Loading recipes: what they resolve to, rows, overrides, and mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.experiments.recipe import PaperFigure, load_recipe, load_recipes, merge, outline_rows
from rskip.settings.errors import SettingError
from rskip.tasks.run import ProbeSettings

Write = Callable[..., Path]

RECIPE = """
kind: translation
corpus: numbers-en-de
train:
  arch: transformer_rskip_ln_tiny
  lr: 5e-3
  max-epoch: 12
  bf16: true
"""
VISION = """
kind: vision
train: {dataset: cifar100, depth: 20, connection: 2.0rskip+ln, iterations: 100}
"""
CAPTIONING = """
kind: captioning
corpus: flickr8k
features: {backbone: constant}
train: {arch: captioning_transformer_sas_tiny, max-epoch: 3, batch-size: 4}
"""
SWEEP = (
    RECIPE
    + """
average: {last: 3}
expected: {sacrebleu: 38, minutes: 4}
rows:
  skip_ln: {train: {arch: transformer_skip_ln_tiny}}
  2rskip_ln:
  lr1.6e-2:
    description: fast
    train: {lr: 1.6e-2, max-epoch: null, max-update: 900}
    expected: {minutes: 1}
    paper: [{bleu: 31.45, table: rSkip Table 2}]
"""
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_the_config_is_everything_with_defaults_filled_in(write: Write) -> None:
    recipe = load_recipe(write(RECIPE + "generate: {beam: 5}\nprepare: {pairs: 300}\n"))
    assert recipe.run_name == recipe.name == "mine" and recipe.row is None
    assert recipe.config == {
        "kind": "translation",
        "corpus": "numbers-en-de",
        "prepare": {"subwords": "bpe", "size": 500, "pairs": 300, "seed": 1},
        "train": {"arch": "transformer_rskip_ln_tiny", "lr": 0.005, "max-epoch": 12, "bf16": True},
        "average": {"last": 10},
        "generate": {"beam": 5},
        "evaluate": {"split": "test"},
    }
    recipe = load_recipe(write(VISION + "paper: [{accuracy: 94.05, table: SAS Table 4}]\n"), overrides=["train.lr=0.2"])
    train = recipe.settings.train
    assert (train.dataset, train.depth, train.connection) == ("cifar100", 20, "2rskip+ln")
    assert (train.iterations, train.lr, train.momentum) == (100, 0.2, 0.9)
    assert recipe.config == {"kind": "vision", "train": train.to_dict()}
    assert recipe.overrides == {"train.lr": 0.2} and recipe.run_name.startswith("mine-")
    assert (recipe.paper[0].measure, recipe.paper[0].figure) == ("accuracy, %", 94.05)


def test_what_does_not_change_the_result_is_not_in_the_config(write: Write) -> None:
    plain = load_recipe(write(RECIPE))
    more = load_recipe(
        write(
            RECIPE + "description: x\nshow: 3\nprobe: {every: 25}\nexpected: {sacrebleu: 38, minutes: 4, machine: m}\n"
            "paper: [{bleu: 31.45, table: rSkip Table 2}]\n"
        )
    )
    assert more.config == plain.config and more.run_name == plain.run_name
    assert more.own.expected == {"sacrebleu": 38, "minutes": 4, "machine": "m"}
    assert more.paper == (PaperFigure(tables=("rSkip Table 2",), key="bleu", measure="BLEU", figure=31.45),)
    assert (more.own.description, more.own.show, more.own.probe) == ("x", 3, ProbeSettings(every=25))


def test_overrides_change_the_config_and_name_another_run(write: Write) -> None:
    path = write(RECIPE)
    recipe = load_recipe(path, overrides=["train.lr=3e-3", "average.last=2"])
    assert recipe.config["train"]["lr"] == 0.003
    assert recipe.config["average"] == {"last": 2}
    assert recipe.overrides == {"train.lr": 0.003, "average.last": 2}
    # sha256 of {"average.last":2,"train.lr":0.003}
    assert recipe.run_name == "mine-54661a6c"
    assert load_recipe(path, overrides=["average.last=2", "train.lr=0.003"]).run_name == recipe.run_name
    assert load_recipe(path, overrides=["train.lr=0.004"]).run_name != recipe.run_name

    unchanged = load_recipe(path, overrides=["train.lr=0.005", "show=9", "probe.every=9"])
    assert (unchanged.run_name, unchanged.own.show, unchanged.overrides) == ("mine", 9, {})


def test_a_row_is_what_the_file_says_with_what_the_row_changes(write: Write) -> None:
    path = write(SWEEP)
    skip, rskip, lr = load_recipes(path)
    assert [recipe.name for recipe in (skip, rskip, lr)] == ["mine_skip_ln", "mine_2rskip_ln", "mine_lr1.6e-2"]
    assert [recipe.run_name for recipe in (skip, rskip, lr)] == [recipe.name for recipe in (skip, rskip, lr)]
    common = load_recipe(write(SWEEP.partition("rows:")[0], "common.yaml"))
    assert rskip.config == common.config and rskip.own == common.own
    assert skip.config == {**common.config, "train": {**common.config["train"], "arch": "transformer_skip_ln_tiny"}}
    assert lr.settings.train == {
        "arch": "transformer_rskip_ln_tiny", "lr": 0.016, "max-epoch": None, "bf16": True, "max-update": 900
    }  # fmt: skip
    assert lr.own.expected == {"sacrebleu": 38, "minutes": 1} and lr.own.description == "fast" and lr.paper


def test_merging_goes_level_by_level_and_leaves_what_is_merged_as_it_was() -> None:
    common, row = {"a": {"b": {"c": 1, "d": [1]}}, "e": {"f": 1}}, {"a": {"b": {"c": None}}, "e": 2, "g": {"h": 3}}
    assert merge(common, row) == {"a": {"b": {"c": None, "d": [1]}}, "e": 2, "g": {"h": 3}}
    assert common == {"a": {"b": {"c": 1, "d": [1]}}, "e": {"f": 1}}


def test_rows_of_a_list_are_every_combination_of_its_mappings(write: Write) -> None:
    path = write(
        RECIPE
        + """
rows:
  - {short: {train: {max-epoch: 11}}, long: }
  - sas: {train: {arch: transformer_sas_tiny, lr: 1e-3}}
    2rskip_ln: {show: 2}
  - {lr2e-3: {train: {lr: 2e-3}}}
"""
    )
    recipes = load_recipes(path)
    assert [recipe.row for recipe in recipes] == [
        "short_sas_lr2e-3", "short_2rskip_ln_lr2e-3", "long_sas_lr2e-3", "long_2rskip_ln_lr2e-3"
    ]  # fmt: skip
    arch = "transformer_sas_tiny"
    assert recipes[0].settings.train == {"arch": arch, "lr": 0.002, "max-epoch": 11, "bf16": True}, "the last wins"
    assert (recipes[3].settings.train["max-epoch"], recipes[3].own.show) == (12, 2)
    assert [outline.parts for outline in outline_rows(path)][1] == ("short", "2rskip_ln", "lr2e-3")
    assert load_recipe(path.with_name("mine_long_sas_lr2e-3.yaml")).config == recipes[2].config
    assert [recipe.row for recipe in load_recipes(path, rows=["long_*"])] == [recipe.row for recipe in recipes[2:]]


def test_rows_are_chosen_by_name_or_pattern_in_the_files_order(write: Write) -> None:
    path = write(SWEEP)
    for rows, expected in {
        ("2rskip_ln", "skip_ln"): ["skip_ln", "2rskip_ln"],
        ("*_ln",): ["skip_ln", "2rskip_ln"],
        ("lr*", "lr1.6e-2"): ["lr1.6e-2"],
        ("*",): ["skip_ln", "2rskip_ln", "lr1.6e-2"],
    }.items():
        assert [recipe.row for recipe in load_recipes(path, rows=rows)] == expected
    message = re.escape("no row 2rksip_ln (did you mean '2rskip_ln'?); its rows: skip_ln, 2rskip_ln, lr1.6e-2")
    with pytest.raises(SettingError, match=message):
        load_recipes(path, rows=["skip_ln", "2rksip_ln"])
    with pytest.raises(SettingError, match="no row a; its rows: none: the file is one run"):
        load_recipes(write(RECIPE), rows=["a"])


def test_the_file_of_a_rows_name_stands_for_the_row(write: Write) -> None:
    path = write(SWEEP, "my_study.yaml")
    for row in ("skip_ln", "2rskip_ln", "lr1.6e-2"):
        recipe = load_recipe(path.with_name(f"my_study_{row}.yaml"))
        assert (recipe.path, recipe.row, recipe.name) == (path, row, f"my_study_{row}")
        assert recipe.config == load_recipes(path, rows=[row])[0].config
    with pytest.raises(SettingError, match=re.escape("no row 2rskpi_ln (did you mean '2rskip_ln'?)")) as error:
        load_recipe(path.with_name("my_study_2rskpi_ln.yaml"))
    assert str(error.value).startswith(f"{path}: ")
    write(RECIPE.replace("lr: 5e-3", "lr: 1"), "my.yaml")  # the longest file name wins if its file has the variant
    write(RECIPE + "rows: {study_other: {}}", "my.yaml")
    assert load_recipe(path.with_name("my_study_other.yaml")).path.name == "my.yaml"
    with pytest.raises(SettingError, match=re.escape("has rows (skip_ln, 2rskip_ln, lr1.6e-2): expected one of them")):
        load_recipe(path)


@pytest.mark.parametrize(
    ("other", "which"),
    [
        ("my.yaml", "row study_skip_ln of my.yaml"),
        ("my_study_skip.yaml", "row ln of my_study_skip.yaml"),
        ("my_study_skip_ln.yaml", "my_study_skip_ln.yaml"),
    ],
)
def test_two_files_whose_runs_have_one_name_are_refused(write: Write, other: str, which: str) -> None:
    rows = {"my.yaml": "rows: {study_skip_ln: {}}", "my_study_skip.yaml": "rows: {ln: {}}"}
    path, second = write(SWEEP, "my_study.yaml"), write(RECIPE + rows.get(other, ""), other)
    of_row = path.with_name("my_study_skip_ln.yaml")
    for read in (load_recipes, outline_rows):
        with pytest.raises(SettingError) as error:
            read(path)
        assert str(error.value) == f"{path}: its run my_study_skip_ln has the name of {which}; rename one of them"
        for file in (second, of_row):
            if file.is_file() or read is load_recipes:
                with pytest.raises(SettingError, match="its run my_study_skip_ln has the name of "):
                    read(file)


def test_overrides_change_every_row(write: Write) -> None:
    path = write(SWEEP)
    skip, rskip, lr = load_recipes(path, overrides=["train.lr=0.016"])
    assert [recipe.settings.train["lr"] for recipe in (skip, rskip, lr)] == [0.016] * 3
    assert skip.overrides == rskip.overrides == {"train.lr": 0.016} and lr.overrides == {}
    assert lr.run_name == "mine_lr1.6e-2"
    assert skip.run_name.removeprefix("mine_skip_ln-") == rskip.run_name.removeprefix("mine_2rskip_ln-")
    with pytest.raises(SettingError, match="unknown key rows"):
        load_recipes(path, overrides=["rows.skip_ln.show=3"])


WRONG = [  # a recipe; what its error says
    ("- a\n", "it holds a list: expected keys and values of a recipe"),
    ("", "it holds nothing"),
    ("kind: translatoin\n", "expected translation or vision or captioning; did you mean translation?"),
    ("kind: [a]\n", "kind is ['a']"),
    ("corpus: numbers-en-de\n", "kind is None"),
    (RECIPE + "evalute: {split: test}\n", "unknown key evalute; did you mean evaluate?"),
    (RECIPE + "average: {lats: 3}\n", "unknown key average.lats; did you mean last?"),
    (RECIPE + "average: {last: 0}\n", "average.last is 0"),
    (RECIPE + "average: {last: 13}\n", "average.last is 13, but train.max-epoch is 12"),
    (RECIPE + "prepare: {pears: 3}\n", "unknown key prepare.pears; did you mean pairs?"),
    (RECIPE + "prepare: {size: big}\n", "prepare.size is 'big'"),
    (RECIPE + "expected: {sacrebleu: high}\n", "expected.sacrebleu is 'high'"),
    (RECIPE + "expected: {machine: 3}\n", "expected.machine is 3.0: expected text"),
    (RECIPE + "show: -1\n", "show is -1"),
    (RECIPE + "probe: {every: 0}\n", "probe.every is 0: expected a whole number, 1 or more"),
    (RECIPE + "probe: {}\n", "probe.every is missing"),
    (CAPTIONING + "probe: {every: 5}\n", "probe can't be given to captioning: expected"),
    (RECIPE + "  probe-every: 5\n", "train.probe-every can't be set in a recipe: use probe.every"),
    (RECIPE + "generate: {path: x}\n", "generate.path can't be set"),
    (RECIPE + "generate: [beam]\n", "generate is ['beam']"),
    (RECIPE + "  distributed-world-size: 4\n", "train.distributed-world-size can't be set in a recipe; use gpus"),
    (RECIPE + "  tokens-per-update: 25000\n", "train.max-tokens is None"),
    (RECIPE + "  save-interval-updates: 2.5\n", "train.save-interval-updates is 2.5"),
    (
        RECIPE + "  max-update: 900\n  save-interval-updates: 100\n",
        "average.last is 10, but train.max-update is 900 and a checkpoint is written every 100",
    ),
    (RECIPE + "paper: {bleu: 31.45, table: rSkip Table 2}\n", "paper is {"),
    (RECIPE + "paper: [{belu: 31.45}]\n", "unknown key paper[0].belu; did you mean bleu?"),
    (RECIPE + "paper: [{bleu: high, table: rSkip Table 2}]\n", "paper[0] is {'bleu': 'high'"),
    (RECIPE + "paper: [{error: 2.0, table: rSkip Table 2}]\n", "unknown key paper[0].error"),
    (RECIPE + "paper: [{bleu: 6.02}]\n", "paper[0] is {'bleu': 6.02}"),
    (RECIPE + "  seed: 3\n", "train.seed can't be set in a recipe; use seeds"),
    (RECIPE + "  max_tokens: 3\n", "as max-tokens"),
    (RECIPE + "  --dropout: 0.1\n", "as dropout"),
    (RECIPE + "  adam-betas: [0.9, 0.98]\n", "train.adam-betas is [0.9, 0.98]"),
    (RECIPE + "  lr: 1\n", "line 9: not valid YAML: key lr is given twice"),
    (RECIPE + "  dropout: {{ dropout }}\n", "line 9: not valid YAML: a key is a list or a mapping: expected"),
    (RECIPE + "  connection: 2rskpi+ln\n", "train.connection is '2rskpi+ln'"),
    (RECIPE + "  connection: 1.5rskip+ln\n", "train.connection is '1.5rskip+ln'"),
    (RECIPE + "  decoder-connection: 1xskip+bn\n", "statistics would count the padding"),
    (RECIPE + "  connection: sas+gn1\n", "statistics would count the padding"),
    (RECIPE + "  user-dir: absent\n", "train.user-dir is 'absent': expected a folder with an __init__.py"),
    (RECIPE.replace("max-epoch: 12", "max-epoch: null"), "train has no end"),
    (RECIPE.replace("numbers-en-de", "nubmers-en-de"), "numbers-en-de"),
    (RECIPE.replace("corpus: numbers-en-de", ""), "corpus is missing"),
    (RECIPE.replace("arch:", "ach:"), "train.arch is missing"),
    (VISION + "corpus: numbers-en-de\n", "unknown key corpus"),
    (VISION + "paper: [{error: 1.0, accuracy: 2.0, table: rSkip Table 2}]\n", "paper[0] is {"),
    (VISION.replace("depth: 20", "depth: 22"), "train.depth is 22"),
    (VISION.replace("depth: 20, ", ""), "train.depth is missing"),
    (VISION.replace("iterations", "iteration"), "unknown key train.iteration; did you mean iterations?"),
    ("kind: vision\ntrain: [depth]\n", "train is ['depth']"),
    ("kind: vision\n", "train is missing"),
    (RECIPE + "average: {last: 3\n", "not valid YAML"),
    (RECIPE + "rows:\n", "rows is None"),
    (RECIPE + "rows: {}\n", "rows is empty: expected a row or more, or no `rows`"),
    (RECIPE + "rows: a\n", "rows is 'a'"),
    (RECIPE + "rows: [a]\n", "rows[0] is 'a'"),
    (RECIPE + "rows: []\n", "rows is empty: expected a row or more"),
    (RECIPE + "rows: [{a: }, {}]\n", "rows[1] is empty: expected a row or more"),
    (RECIPE + "rows: [{a: }, {b: {kind: vision}}]\n", "rows[1].b.kind can't be changed by a row"),
    (RECIPE + "rows: [{a: , a_b: }, {b_c: , c: }]\n", "rows has two combinations of the name a_b_c; rename a part"),
    (RECIPE + "rows: {a: 3}\n", "rows.a is 3"),
    (RECIPE + "rows: {a: {kind: vision}}\n", "rows.a.kind can't be changed by a row"),
    (RECIPE + "rows: {a: {rows: {}}}\n", "rows.a.rows can't be changed by a row"),
    (RECIPE + "rows: {a/b: {}}\n", "rows.a/b is a key: expected a row's name, as 2rskip_ln"),
    (RECIPE + "rows: {a: {}, a: {}}\n", "key a is given twice"),
    (RECIPE + "rows: {a: {trian: {}}}\n", "row a: unknown key trian; did you mean train?"),
    (RECIPE + "rows: {a: {}, b: {train: {seed: 3}}}\n", "row b: train.seed can't be set"),
]


def test_mistakes_are_one_line_that_names_file_row_and_key(write: Write) -> None:
    for text, message in WRONG:
        path = write(text)
        with pytest.raises(SettingError) as error:
            load_recipes(path)
        assert message in str(error.value), text
        assert str(error.value).startswith(str(path)) and "\n" not in str(error.value), text


def test_mistaken_overrides(write: Write) -> None:
    path = write(RECIPE)
    for override, message in {
        "train.lr": "expected key=value",
        ".lr=3": "expected key=value",
        "trian.lr=3": "unknown key trian; did you mean train?",
        "kind=vision": "kind can't be overridden",
        "corpus.name=x": "corpus is one value",
        "train.lr=[": "override train.lr=[, line 1: not valid YAML",
        "expected.machine=3": "expected.machine is 3.0: expected text",
    }.items():
        with pytest.raises(SettingError) as error:
            load_recipe(path, overrides=[override])
        assert message in str(error.value)


def test_a_file_that_is_not_there_or_not_text(write: Write, tmp_path: Path) -> None:
    write(RECIPE)
    with pytest.raises(FileNotFoundError, match=r"no recipe .*mnie.yaml \(did you mean 'mine.yaml'\?\)"):
        load_recipe(tmp_path / "mnie.yaml")
    with pytest.raises(FileNotFoundError, match=r"no recipe .*: give the path of a recipe file"):
        load_recipe(tmp_path / "absent" / "any_thing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"kind: \xff")
    with pytest.raises(SettingError, match="not valid UTF-8 .byte 6."):
        load_recipe(tmp_path / "binary.yaml")
