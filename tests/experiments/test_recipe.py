"""Loading recipes: what they resolve to, variants, overrides, and mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.experiments.recipe import (
    PaperScore,
    Recipe,
    find_recipe,
    load_recipe,
    load_recipes,
    read_recipes,
)
from rskip.records import Record
from rskip.settings.errors import SettingError
from rskip.tasks.run import ProbeSettings

Write = Callable[..., Path]

RECIPE = """
kind: translation
corpus: numbers-en-de
train:
  arch: transformer_rskip_ln_tiny
  lr: 5e-3
  max-tokens: 4000
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
variants:
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
    assert recipe.run == recipe.address == "mine" and recipe.variant is None
    assert recipe.config == {
        "kind": "translation",
        "corpus": "numbers-en-de",
        "prepare": {"subwords": "bpe", "size": 500, "pairs": 300, "seed": 1},
        "train": {"arch": "transformer_rskip_ln_tiny", "lr": 0.005, "max-tokens": 4000, "max-epoch": 12, "bf16": True},
        "average": {"last": 10},
        "generate": {"beam": 5},
        "evaluate": {"split": "test"},
    }
    recipe = load_recipe(write(VISION + "paper: [{accuracy: 94.05, table: SAS Table 4}]\n"), overrides=["train.lr=0.2"])
    train = recipe.settings.train
    assert (train.dataset, train.depth, train.connection) == ("cifar100", 20, "2rskip+ln")
    assert (train.iterations, train.lr, train.momentum) == (100, 0.2, 0.9)
    assert recipe.config == {"kind": "vision", "train": train.to_dict()}
    assert recipe.overrides == {"train.lr": 0.2} and recipe.run.startswith("mine-")
    assert (recipe.paper[0].measure, recipe.paper[0].figure) == ("accuracy, %", 94.05)


def test_what_does_not_change_the_result_is_not_in_the_config(write: Write) -> None:
    plain = load_recipe(write(RECIPE))
    more = load_recipe(
        write(
            RECIPE + "description: x\nshow: 3\nprobe: {every: 25}\nexpected: {sacrebleu: 38, minutes: 4, machine: m}\n"
            "paper: [{bleu: 31.45, table: rSkip Table 2}]\n"
        )
    )
    assert more.config == plain.config and more.run == plain.run
    assert more.own.expected == {"sacrebleu": 38, "minutes": 4, "machine": "m"}
    assert more.paper == (PaperScore(tables=("rSkip Table 2",), key="bleu", measure="BLEU", figure=31.45),)
    assert (more.own.description, more.own.show, more.own.probe) == ("x", 3, ProbeSettings(every=25))


def test_overrides_change_the_config_and_name_another_run(write: Write) -> None:
    path = write(RECIPE)
    recipe = load_recipe(path, overrides=["train.lr=3e-3", "average.last=2"])
    assert recipe.config["train"]["lr"] == 0.003
    assert recipe.config["average"] == {"last": 2}
    assert recipe.overrides == {"train.lr": 0.003, "average.last": 2}
    # sha256 of {"average.last":2,"train.lr":0.003}
    assert recipe.run == "mine-54661a6c"
    assert load_recipe(path, overrides=["average.last=2", "train.lr=0.003"]).run == recipe.run
    assert load_recipe(path, overrides=["train.lr=0.004"]).run != recipe.run

    unchanged = load_recipe(path, overrides=["train.lr=0.005", "show=9", "probe.every=9"])
    assert (unchanged.run, unchanged.own.show, unchanged.overrides) == ("mine", 9, {})


def test_a_variant_is_what_the_file_says_with_what_it_changes(write: Write) -> None:
    path = write(SWEEP)
    skip, rskip, lr = load_recipes(path)
    assert [recipe.address for recipe in (skip, rskip, lr)] == ["mine/skip_ln", "mine/2rskip_ln", "mine/lr1.6e-2"]
    assert [recipe.run for recipe in (skip, rskip, lr)] == [recipe.address for recipe in (skip, rskip, lr)]
    common = load_recipe(write(SWEEP.partition("variants:")[0], "common.yaml"))
    assert rskip.config == common.config and rskip.own == common.own
    assert skip.config == {**common.config, "train": {**common.config["train"], "arch": "transformer_skip_ln_tiny"}}
    assert lr.settings.train == {
        "arch": "transformer_rskip_ln_tiny", "lr": 0.016, "max-tokens": 4000, "max-epoch": None, "bf16": True,
        "max-update": 900
    }  # fmt: skip
    assert lr.own.expected == {"sacrebleu": 38, "minutes": 1} and lr.own.description == "fast" and lr.paper


def test_variants_of_a_list_are_every_combination_of_its_mappings(write: Write) -> None:
    path = write(
        RECIPE
        + """
variants:
  - {short: {train: {max-epoch: 11}}, long: }
  - sas: {train: {arch: transformer_sas_tiny, lr: 1e-3}}
    2rskip_ln: {show: 2}
  - {lr2e-3: {train: {lr: 2e-3}}}
"""
    )
    recipes = load_recipes(path)
    assert [recipe.variant for recipe in recipes] == [
        "short_sas_lr2e-3", "short_2rskip_ln_lr2e-3", "long_sas_lr2e-3", "long_2rskip_ln_lr2e-3"
    ]  # fmt: skip
    train = recipes[0].settings.train
    assert (train["arch"], train["lr"], train["max-epoch"]) == ("transformer_sas_tiny", 0.002, 11), "the last wins"
    assert (recipes[3].settings.train["max-epoch"], recipes[3].own.show) == (12, 2)
    assert [outline.parts for outline in read_recipes(path)][1] == ("short", "2rskip_ln", "lr2e-3")
    assert load_recipe(path, variant="long_sas_lr2e-3").config == recipes[2].config
    assert [each.config for each in load_recipes(path, variants=["long_*"])] == [each.config for each in recipes[2:]]


def test_variants_are_chosen_by_name_or_pattern_in_the_files_order(write: Write) -> None:
    path = write(SWEEP)
    for chosen, expected in {
        ("2rskip_ln", "skip_ln"): ["skip_ln", "2rskip_ln"],
        ("*_ln",): ["skip_ln", "2rskip_ln"],
        ("lr*", "lr1.6e-2"): ["lr1.6e-2"],
        ("*",): ["skip_ln", "2rskip_ln", "lr1.6e-2"],
    }.items():
        assert [recipe.variant for recipe in load_recipes(path, variants=chosen)] == expected
    message = re.escape("no variant 2rksip_ln (did you mean '2rskip_ln'?); its variants: skip_ln, 2rskip_ln, lr1.6e-2")
    with pytest.raises(SettingError, match=message):
        load_recipes(path, variants=["skip_ln", "2rksip_ln"])
    many = write(RECIPE + "variants: {" + ", ".join(f"name{number}: {{}}" for number in range(11)) + "}")
    message = re.escape("no variant nam10 (did you mean 'name10'?); its variants: 11, which `rskip run RECIPE` lists")
    with pytest.raises(SettingError, match=message):
        load_recipes(many, variants=["nam10"])
    with pytest.raises(SettingError, match="no variant x; its variants: name0, name1, .*, name10$"):
        load_recipes(many, variants=["x"])
    with pytest.raises(SettingError, match="no variant a; its variants: none, the file is one run"):
        load_recipes(write(RECIPE), variants=["a"])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> Write:
    """Writes recipes into recipes/ of the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("recipes").mkdir()
    return lambda text, name: write(text, f"recipes/{name}")


def test_an_address_stands_for_a_variant_of_a_file_in_recipes(here: Write) -> None:
    here(SWEEP, "my_study.yaml")
    here(RECIPE, "one.yaml")
    path = Path("recipes/my_study.yaml")
    for variant in ("skip_ln", "2rskip_ln", "lr1.6e-2"):
        recipe = load_recipe(f"my_study/{variant}")
        assert (recipe.path, recipe.variant, recipe.address) == (path, variant, f"my_study/{variant}")
        assert recipe.config == load_recipe(path, variant=variant).config == load_recipe(path / variant).config
    assert [recipe.variant for recipe in load_recipes("my_study/*_ln")] == ["skip_ln", "2rskip_ln"]
    assert len(load_recipes("my_study")) == 3 and load_recipe("one").address == "one"
    assert find_recipe("my_study/a/b") == (path, "a/b") and find_recipe(path) == (path, None)
    for name, message in {
        "my_study": "has variants (skip_ln, 2rskip_ln, lr1.6e-2): expected one of them; name it, such as recipes/my_",
        "my_study/2rskpi_ln": "no variant 2rskpi_ln (did you mean '2rskip_ln'?)",
        "one/a": "no variant a; its variants: none, the file is one run",
    }.items():
        with pytest.raises(SettingError, match=re.escape(message)) as error:
            load_recipe(name)
        assert str(error.value).startswith("recipes/")
    with pytest.raises(SettingError, match="variants are given twice: expected either my_study/skip_ln or --variants"):
        load_recipes("my_study/skip_ln", variants=["lr*"])


def test_a_record_of_other_settings_is_refused_but_not_one_from_before_a_setting(
    write: Write, make_record: Callable[..., Record]
) -> None:
    path = write(RECIPE)
    recipe = load_recipe(path)

    def refused(config: object, recipe: Recipe = recipe) -> str:
        with pytest.raises(ValueError, match=r"^results/numbers/1.json was made with other settings \(") as error:
            recipe.check_record(make_record(config=config))
        return str(error.value).partition(" (")[2].partition("): for another run, give the change with --set")[0]

    recipe.check_record(make_record(config=recipe.config))
    changed = {**recipe.config, "train": {**recipe.config["train"], "lr": 0.1}}
    assert refused(changed) == "train.lr: 0.1, now 0.005"
    older = {key: value for key, value in recipe.config.items() if key != "generate"} | {"average": {}}
    recipe.check_record(make_record(config=older))
    further = {**recipe.config, "train": {**recipe.config["train"], "clip-norm": 1.0}}
    assert refused(further) == "train.clip-norm: 1.0, now not set"
    given = load_recipe(path, overrides=["average.last=10"])
    assert refused(older, given) == "average.last: not set, now 10", "it is given, so it need not be what it was"


WRONG = [  # a recipe; what its error says
    ("- a\n", "it holds a list: expected keys and values of a recipe"),
    ("kind: translatoin\n", "or captioning or language_modeling; did you mean translation?"),
    ("corpus: numbers-en-de\n", "kind is None"),
    (RECIPE + "evalute: {split: test}\n", "unknown key evalute; did you mean evaluate?"),
    (RECIPE + "average: {last: 13}\n", "average.last is 13, but train.max-epoch is 12"),
    (CAPTIONING + "probe: {every: 5}\n", "probe is not supported for captioning: expected"),
    (RECIPE + "  probe-every: 5\n", "train.probe-every can't be set in a recipe: use probe.every"),
    (RECIPE + "  distributed-world-size: 4\n", "train.distributed-world-size can't be set in a recipe; use gpus"),
    (RECIPE.replace("max-tokens", "batch-size") + "  tokens-per-update: 25000\n", "train.max-tokens is None"),
    (
        RECIPE + "  max-update: 900\n  save-interval-updates: 100\n",
        "average.last is 10, but train.max-update is 900",
    ),
    (RECIPE + "paper: [{belu: 31.45}]\n", "unknown key paper[0].belu; did you mean bleu?"),
    (RECIPE + "paper: [{bleu: high, table: rSkip Table 2}]\n", "paper[0].bleu is 'high': expected a number"),
    (RECIPE + "paper: [{bleu: 6.02}]\n", "paper[0].table is missing"),
    (RECIPE + "  seed: 3\n", "train.seed can't be set in a recipe; use seeds"),
    (RECIPE + "  lr: 1\n", "line 10: not valid YAML: key lr is given twice"),
    (RECIPE + "  decoder-connection: 1xskip+bn\n", "statistics would include padding"),
    (RECIPE + "  user-dir: absent\n", "train.user-dir is 'absent': expected an existing folder with an __init__.py"),
    (RECIPE.replace("max-epoch: 12", "max-epoch: null"), "train has no end"),
    (RECIPE.replace("max-tokens: 4000", ""), "train has no batch size, which fairseq-train needs; set train.max-"),
    (RECIPE.replace("arch:", "ach:"), "train.arch is missing"),
    (RECIPE.replace("max-tokens", "max-sentences-valid"), "train has no batch size"),
    (VISION + "paper: [{error: 1.0, accuracy: 2.0, table: rSkip Table 2}]\n", "paper[0] has 2 scores: expected one"),
    (VISION + "batch_size: 4\n", "unknown key batch_size; did you mean train.batch_size?"),
    (RECIPE + "variants:\n", "variants is None"),
    (RECIPE + "variants: {}\n", "variants is empty: expected one or more variants"),
    (RECIPE + "variants: [{a: }, {}]\n", "variants is empty: expected one or more variants"),
    (RECIPE + "variants: [{a: }, {b: {kind: vision}}]\n", "variants[1].b.kind can't be changed by a variant"),
    (RECIPE + "variants: [{a: , a_b: }, {b_c: , c: }]\n", "two combinations with the name a_b_c; rename a part"),
    (RECIPE + "variants: {a/b: {}}\n", "variants.a/b is a key: expected the name of a variant, such as 2rskip_ln"),
    (RECIPE + "variants: {a: {trian: {}}}\n", "variant a: unknown key trian; did you mean train?"),
]


def test_mistakes_are_one_line_that_names_file_variant_and_key(write: Write) -> None:
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
        "lr=3": "unknown key lr; did you mean train.lr?",
        "kind=vision": "kind can't be overridden",
        "corpus.name=x": "corpus is one value",
        "train.lr=[": "override train.lr=[, line 1: not valid YAML",
    }.items():
        with pytest.raises(SettingError) as error:
            load_recipe(path, overrides=[override])
        assert message in str(error.value)


def test_a_file_that_is_not_there_or_not_text(write: Write, tmp_path: Path) -> None:
    write(RECIPE)
    with pytest.raises(FileNotFoundError, match=r"no recipe .*mnie.yaml \(did you mean 'mine.yaml'\?\)"):
        load_recipe(tmp_path / "mnie.yaml")
    with pytest.raises(FileNotFoundError, match=r"no recipe .*: give RECIPE/VARIANT, or the path of a recipe file"):
        load_recipe(tmp_path / "absent" / "any_thing.yaml")
    (tmp_path / "README.md").write_text("")
    with pytest.raises(FileNotFoundError, match=r"README.md is not a recipe: expected a file that ends in .yaml or .y"):
        load_recipe(tmp_path / "README.md")
    (tmp_path / "binary.yaml").write_bytes(b"kind: \xff")
    with pytest.raises(SettingError, match="not valid UTF-8 .byte 6."):
        load_recipe(tmp_path / "binary.yaml")
