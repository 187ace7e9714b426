"""Every variant of recipes/: it loads, is what its name and its paper say, and made the records that are committed."""

from __future__ import annotations

import itertools
import json
import random
import re
import shlex
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rskip.connections import parse_connection, registry
from rskip.corpora import find_corpus
from rskip.experiments.comparisons import Comparisons
from rskip.experiments.recipe import Recipe, all_recipes, load_recipe, load_recipes
from rskip.language_modeling.settings import TrainingSettings
from rskip.records import read_records
from rskip.tasks.run import Run
from rskip.translation.batches import plan_batches
from rskip.translation.recipe import TOKENS_PER_UPDATE as KEY
from rskip.translation.training import generate_command, scored_file, training_of
from rskip.zoo.registry import read_registry

ROOT = Path(__file__).parents[2]
DATA_OF_USERS = {"en_vi_30k"}  # whose recipes load only where the user has made their data
KNOWN = dict(registry._families)  # with what recipes' user-dirs register, which other test files are not to see
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(registry, "_families", KNOWN)
    PATHS = [path for path in sorted((ROOT / "recipes").glob("*.yaml")) if path.stem not in DATA_OF_USERS]
    FILES = {path.stem: load_recipes(path) for path in PATHS}
RECIPES = {recipe.address: recipe for recipes in FILES.values() for recipe in recipes}
TRANSLATION = {name: recipe for name, recipe in RECIPES.items() if recipe.task.name == "translation"}
VISION = {name: recipe for name, recipe in RECIPES.items() if recipe.task.name == "vision"}

# The papers' settings: variant -> dropout, tokens per update, updates. Their scores are typed in recipes/ only.
EN_VI = {
    "base_1xskip": 0.1,
    "base_1xskip_ln": 0.1,
    "base_2xskip_ln": 0.1,
    "base_3xskip_ln": 0.1,
    "base_2rskip_ln": 0.1,
    "base_3rskip_ln": 0.1,
    "base_sas": 0.1,
    "2layer_1xskip_ln": 0.1,
    "2layer_2rskip_ln": 0.1,
    "big_1xskip_ln": 0.3,
    "big_2rskip_ln": 0.3,
    "big_sas": 0.3,
}
WMT = {
    "de_base_1xskip_ln": (0.1, 16384, 550_000),
    "de_base_2rskip_ln": (0.1, 16384, 550_000),
    "de_base_1xskip_ln_sas_settings": (0.1, 25000, 100_000),
    "de_base_sas": (0.1, 25000, 100_000),
    "de_big_1xskip_ln": (0.3, 16384, 550_000),
    "de_big_2rskip_ln": (0.3, 16384, 550_000),
    "de_big_1xskip_ln_sas_settings": (0.3, 25000, 300_000),
    "de_big_sas": (0.3, 25000, 300_000),
    "fr_base_1xskip_ln": (0.1, 16384, 550_000),
    "fr_base_2rskip_ln": (0.1, 16384, 550_000),
    "fr_base_1xskip_ln_sas_settings": (0.1, 25000, 100_000),
    "fr_base_sas": (0.1, 25000, 100_000),
    "fr_big_1xskip_ln": (0.1, 16384, 550_000),
    "fr_big_2rskip_ln": (0.1, 16384, 550_000),
    "fr_big_1xskip_ln_sas_settings": (0.1, 25000, 300_000),
    "fr_big_sas": (0.1, 25000, 300_000),
}
PAPERS = {
    **{f"iwslt15_en_vi/{name}": (dropout, 4096, 100_000) for name, dropout in EN_VI.items()},
    **{f"wmt14_en_{name.replace('_', '/', 1)}": values for name, values in WMT.items()},
}
# features, features inside the feed-forward branch, heads, layers of each stack
SIZES = {"base": (512, 2048, 8, 6), "big": (1024, 4096, 16, 6), "2layer": (512, 2048, 8, 2)}

# Variants' names -> connection.
SAS = "sas:alpha_bias=3,beta_bias=-3"
CIFAR10 = {
    "1xskip": "1xskip",
    "2xskip": "2xskip",
    "3xskip": "3xskip",
    "1xskip_ln": "1xskip+ln",
    "2xskip_ln": "2xskip+ln",
    "3xskip_ln": "3xskip+ln",
    "2rskip_ln": "2rskip+ln",
    "3rskip_ln": "3rskip+ln",
    "0p5xskip": "0.5xskip",
    "0p5xskip_ln": "0.5xskip+ln",
    "1xskip_ln_branch3": "1xskip+ln:branch_scale=3",
    "1xskip_bn": "1xskip+bn",
    "2xskip_bn": "2xskip+bn",
    "3xskip_bn": "3xskip+bn",
    "2rskip_bn": "2rskip+bn",
    "3rskip_bn": "3rskip+bn",
    "wskip_ln_init1": "wskip+ln",
    "wskip_ln_init2": "wskip+ln:init=2",
    "sas": SAS,
    "sas_bn": "sas+bn:alpha_bias=3,beta_bias=-3",
    "sas_gamma_free": f"{SAS},gamma=free",
    "sas_no_norm_term": f"{SAS},norm_term=false",
    "sas_gate_single_no_norm_term": f"{SAS},gate=single,norm_term=false",
    "highway": "highway",
    "highway_gate_single": "highway:gate=single",
    "highway_bias_m6": "highway:bias=-6",
    "highway_gate_full": "highway:gate=full",
}
CIFAR100 = ("1xskip", "2rskip_ln", "sas")
DEPTHS = (20, 32, 44, 56, 110)
COCO = {"base": "skip_ln", "sas": "sas"}
RATES = ("5e-4", "1e-3", "2e-3", "4e-3", "8e-3", "1.6e-2")  # of the study multi30k_lr
SAS_STUDY = (
    "1xskip_ln", "eq4", "clip", "bias", "prenorm", "closed", "gate_single", "branch_norm", "half_rate",
)  # fmt: skip
GRIDS = {  # studies of our own, of every combination: all parts but the connections, with what each sets
    "field": (
        {f"{n}x{n}": {"encoder-layers": n, "decoder-layers": n} for n in (6, 18)},
        {f"lr{rate}": {"lr": float(rate)} for rate in ("2e-3", "1e-3", "4e-3")},
    ),
    "field_cifar10": ({f"lr{rate}": {"lr": rate} for rate in (0.2, 0.05, 0.8)},),
    "lm_field": (
        {"l4": {"layers": 4, "features": 128}, "l24": {"layers": 24, "features": 64}},
        {f"lr{rate}": {"lr": float(rate), "final_lr": float(rate) / 10} for rate in ("1e-3", "3e-3")},
    ),
    "lm_field_rates": (
        {"l4": {"layers": 4, "features": 128}},
        {f"lr{rate}": {"lr": float(rate), "final_lr": float(rate) / 10} for rate in ("3e-3", "6e-3", "12e-3")},
    ),
    "lm_rates": (
        {"l4": {"layers": 4, "features": 128}},
        {f"lr{n}": {"lr": float(n), "final_lr": float(n) / 10} for n in ("7.5e-4", "1.5e-3", "3e-3", "6e-3")},
    ),
}
FAST = ("1xskip", "2rskip_ln", "2rskip_ln_no_norm_decay", "2xskip_ln", "wskip_ln_init1", "sas")  # of cifar10_fast
SHORT = ("1xskip", "2xskip", "0p5xskip", "1xskip_ln", "2xskip_ln", "2rskip_ln")  # of cifar10_short
RATES_AND_DECAYS = ("lr0p2_wd5e-4", "lr0p2_wd1e-3", "lr0p4_wd5e-4", "lr0p4_wd1e-3")
SEARCH = [f"{name}_{choice}" for name in ("1xskip", "2rskip_ln") for choice in RATES_AND_DECAYS]  # of cifar10_resnet20
TEXT = {"prenorm_ln": "prenorm+ln", "1xskip_ln": "1xskip+ln", "2rskip_ln": "2rskip+ln", "2xskip_ln": "2xskip+ln"}
ARCHITECTURES = {"1xskip_ln": "skip_ln", "2rskip_ln": "rskip_ln", "sas": "sas", "prenorm_ln": "prenorm"}


@pytest.fixture(autouse=True)
def connections_of_user_dirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_families", KNOWN)


def read_text(recipe: Recipe) -> str:
    return recipe.path.read_text(encoding="utf-8")


def grid_names(study: str) -> dict[str, dict[str, Any]]:
    """The variants' names that a grid has to have, and the settings that they stand for."""
    *before, rates = GRIDS[study]
    first, connections = "".join([f"{study}/", *(f"{next(iter(each))}_" for each in before)]), []
    for name in RECIPES:
        if match := re.fullmatch(rf"{first}(.+)_{next(iter(rates))}", name):
            connections.append(match[1])
    axes = [*before, {name: {} for name in connections}, rates]
    return {
        f"{study}/{'_'.join(parts)}": {
            key: value for axis, part in zip(axes, parts, strict=True) for key, value in axis[part].items()
        }
        for parts in itertools.product(*axes)
    }


def test_there_is_a_variant_for_every_row_of_the_papers_and_of_our_studies() -> None:
    assert set(RECIPES) == {
        "numbers_en_de_demo",
        *(f"multi30k_en_de/{name}" for name in ("1xskip_ln", "2xskip_ln", "2rskip_ln", "prenorm_ln", "sas")),
        *(f"multi30k_en_de/{name}" for name in ("sas_lr4e-3", "1xskip_ln_sas_settings")),
        *("multi30k_en_fr/2rskip_ln", "multi30k_de_en/2xskip_ln", "multi30k_fr_en/2xskip_ln"),
        *(f"multi30k_sas/{name}" for name in SAS_STUDY),
        *(f"multi30k_lr/{name}_lr{rate}" for name in ARCHITECTURES for rate in RATES),
        *PAPERS,
        *(f"cifar10_preact{depth}/{name}" for depth in (20, 110) for name in CIFAR10),
        *(f"cifar100/preact{depth}_{name}" for name in CIFAR100 for depth in DEPTHS),
        *(name for study in GRIDS for name in grid_names(study)),
        *(f"cifar10_fast/preact20_{name}" for name in FAST),
        *(f"cifar10_short/preact110_{name}" for name in SHORT),
        *(f"cifar10_resnet20/preact20_{name}" for name in FAST if not name.endswith("_no_norm_decay")),
        *(f"cifar10_resnet20_search/{name}" for name in SEARCH),
        *(f"flickr8k/{name}" for name in ("1xskip_ln", "2rskip_ln", "sas", "no_image")),
        *(f"sas_table5/{name}_{stage}" for name in COCO for stage in ("cross_entropy", "self_critical")),
        *(f"shakespeare_char/{name}" for name in TEXT),
    }


def test_the_fields_variants_differ_in_what_their_names_say() -> None:
    for study in GRIDS:
        names, settings = grid_names(study), []
        for name, said in names.items():
            train = dict(RECIPES[name].config["train"])
            assert {key: train[key] for key in said} == pytest.approx(said), name
            varied = {*said, "connection", "value-residual", "weight-decay", "warmup-updates", "iterations"}
            settings.append({**RECIPES[name].config, "train": {k: v for k, v in train.items() if k not in varied}})
        assert len(settings) >= 12 and all(each == settings[0] for each in settings), study


def test_a_file_begins_with_commands_that_run_its_variants() -> None:
    for name, recipes in FILES.items():
        header = re.match(r"(#.*\n)+", read_text(recipes[0]))
        assert header, name
        commands = [shlex.split(line) for line in re.findall(r"^#   (rskip run .*)$", header[0], re.MULTILINE)]
        assert commands, name
        for words in commands:
            assert words[2] == f"recipes/{name}.yaml"
            if "--variants" in words:
                chosen = words[words.index("--variants") + 1 :]
                named = list(itertools.takewhile(lambda word: not word.startswith("--"), chosen))
                assert load_recipes(ROOT / words[2], variants=named), name


def test_a_variant_says_what_it_is_and_what_to_expect() -> None:
    wrong = []
    for name, recipe in RECIPES.items():
        expected = dict(recipe.own.expected)
        measured = bool(expected) and "machine" in expected and "minutes" in expected
        figures = [value for key, value in expected.items() if key not in ("machine", "minutes")]
        said = read_text(recipe).partition("\nkind:")[0]
        if not recipe.own.description or bool(expected) != measured or (measured and recipe.paper):
            wrong.append(name)
        if measured and not (figures and all(re.search(rf"Expected: .*\b{value:g}\b", said) for value in figures)):
            wrong.append(name)
        study = name.startswith(("multi30k_lr", "multi30k_sas", "cifar10_short", "cifar10_resnet20", *GRIDS))
        if not expected and not study and "We have not completed this recipe" not in said:
            wrong.append(name)
    assert wrong == []


def test_committed_records_and_registered_models_were_made_by_the_variants_as_they_are() -> None:
    def again(address: str, overrides: Any) -> Recipe:
        file, _, variant = address.partition("/")
        texts = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
        return load_recipe(ROOT / f"recipes/{file}.yaml", variant=variant or None, overrides=texts)

    records = {str(record.path.relative_to(ROOT)): record for record in read_records(ROOT / "study/results/runs")}
    assert len({record.run for record in records.values()}) >= 6
    for path, record in records.items():
        if record.address.startswith(tuple(DATA_OF_USERS)):
            continue
        recipe = again(record.address, record.overrides)
        assert (record.config, record.run, record.address) == (recipe.config, recipe.run, recipe.address), path
        assert path == str(recipe.record_path(record.seed))
        assert record.config == json.loads(json.dumps(recipe.config)), "as JSON has it"
    for name, entry in read_registry(ROOT / "checkpoints.json").items():
        recipe = again(entry.recipe, entry.overrides)
        assert records[str(recipe.record_path(entry.seed))].config == recipe.config, name
        assert entry.folder == f"checkpoints/{recipe.run}"


# Which variants a paper's table has; docs/tables.md shows their scores.
TABLES = {
    "rskip-table-1": {
        f"cifar10_preact110/{name}"
        for name in ("1xskip", "2xskip", "3xskip", "1xskip_ln", "2xskip_ln", "3xskip_ln", "2rskip_ln", "3rskip_ln")
    },
    "rskip-table-2": {
        f"iwslt15_en_vi/base_{name}"
        for name in ("1xskip", "1xskip_ln", "2xskip_ln", "3xskip_ln", "2rskip_ln", "3rskip_ln")
    },
    "rskip-table-3": {
        f"cifar10_preact110/{name}" for name in ("1xskip", "0p5xskip", "0p5xskip_ln", "1xskip_ln_branch3")
    },
    "rskip-table-4": {
        f"cifar10_preact110/{name}"
        for name in ("1xskip", "1xskip_bn", "2xskip_bn", "3xskip_bn", "2rskip_bn", "3rskip_bn")
    },
    "rskip-table-5": {
        f"iwslt15_en_vi/{size}_{name}" for size in ("base", "2layer") for name in ("1xskip_ln", "2rskip_ln")
    },
    "rskip-table-6": {f"cifar100/preact{depth}_{name}" for name in ("1xskip", "2rskip_ln") for depth in DEPTHS},
    "rskip-table-7": {
        f"{study}/{size}_{name}"
        for study in ("iwslt15_en_vi", "wmt14_en_de", "wmt14_en_fr")
        for size in ("base", "big")
        for name in ("1xskip_ln", "2rskip_ln")
    },
    "sas-table-3": {
        *(f"iwslt15_en_vi/{size}_{name}" for size in ("base", "big") for name in ("1xskip_ln", "sas")),
        *(
            f"wmt14_en_{language}/{size}_{name}"
            for language in ("de", "fr")
            for size in ("base", "big")
            for name in ("1xskip_ln_sas_settings", "sas")
        ),
    },
    "sas-table-4": {
        f"{study}{name}" for study in ("cifar10_preact110/", "cifar100/preact110_") for name in ("1xskip", "sas")
    },
    "sas-table-6": {
        f"cifar10_preact110/{name}"
        for name in (
            "1xskip", "highway", "highway_bias_m6", "highway_gate_single", "highway_gate_full",
            "sas_no_norm_term", "sas_gate_single_no_norm_term",
        )
    },  # fmt: skip
    "sas-table-7": {f"cifar10_preact110/{name}" for name in ("1xskip", "sas_bn", "sas")},
    "rskip-section-4.3": {f"cifar10_preact110/{name}" for name in ("2rskip_ln", "wskip_ln_init1", "wskip_ln_init2")},
    "sas-footnote-1": {f"cifar10_preact110/{name}" for name in ("sas", "sas_gamma_free")},
}


def test_the_papers_tables_have_their_variants() -> None:
    tables = Comparisons(all_recipes(ROOT), [])
    assert set(tables.of_papers) == {*TABLES, "sas-table-5"}
    for name, variants in TABLES.items():
        table = tables.table(name)
        assert {line.recipe.address for line in table.lines if line.paper} == variants, name
        compared = [line for line in table.lines if line.baseline is not None]
        firsts = {line.baseline.recipe.address for line in compared if line.baseline}
        assert {line.recipe.address for line in compared} | firsts == variants, f"{name}: compared, or a baseline"
    assert len(tables.table("sas-table-5").lines) == 16


def parse(command: list[str], *, generation: bool = False) -> Namespace:
    """A command's arguments as fairseq's own parser reads them."""
    options = pytest.importorskip("fairseq.options")
    parser = options.get_generation_parser() if generation else options.get_training_parser()
    return options.parse_args_and_arch(parser, command[1:])


def connection_of(name: str) -> str:
    """The connection that a variant's name ends in, as a spec: `..._2rskip_ln` -> `2rskip+ln`."""
    match = re.search(r"[_/](\d[xr]skip(_ln)?|sas)(_sas_settings)?$", name)
    assert match, name
    return match[1].replace("_", "+")


def test_fairseq_takes_the_flags_of_every_variant_and_a_papers_variant_is_what_its_name_and_the_paper_say() -> None:
    for name, recipe in TRANSLATION.items():
        if name.startswith(tuple(GRIDS)) and not name.endswith("_sas_lr4e-3"):
            continue
        run = Run(name=name, seed=1, settings=recipe.settings)
        flags, args = recipe.settings.train, parse(training_of(run).command("bfloat16"))
        if not name.startswith("multi30k_lr") or name.endswith("lr5e-4"):
            for flag, value in flags.items():
                parsed = getattr(args, flag.replace("-", "_"), None)
                parsed = parsed[0] if isinstance(parsed, list) else parsed
                assert flag == KEY or (flag == "max-tokens" and KEY in flags) or str(parsed) == str(value), (name, flag)
            parsed = parse(generate_command(run, checkpoint=scored_file(run)), generation=True)
            for flag, value in recipe.settings.generate.items():
                assert str(getattr(parsed, flag.replace("-", "_"))) == str(value), (name, flag)
        if name not in PAPERS:
            continue
        dropout, tokens, updates = PAPERS[name]
        named = re.match(r"(iwslt15_en_vi|wmt14_en_..)/([^_]+)", name)
        assert named
        width, *sizes = SIZES[named[2]]
        assert recipe.settings.corpus == find_corpus(named[1].replace("_", "-")).name
        assert args.connection == connection_of(name), name
        assert not {"encoder-connection", "decoder-connection"} & set(flags)
        for side in ("encoder", "decoder"):
            features = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
            assert [getattr(args, f"{side}_{each}") for each in features] == [width, *sizes], name
        assert (args.dropout, args.label_smoothing, args.share_all_embeddings) == (dropout, 0.1, True), name
        assert (args.adam_betas, args.adam_eps, args.clip_norm) == ("(0.9, 0.98)", 1e-9, 0.0)
        assert args.lr == pytest.approx([width**-0.5 * 4000**-0.5], rel=1e-5), name
        assert (args.lr_scheduler, args.warmup_updates, args.warmup_init_lr) == ("inverse_sqrt", 4000, -1)
        assert (args.max_update, flags[KEY]) == (updates, tokens), name
        averaged_checkpoints = 10 if name.endswith(("_sas", "_sas_settings")) else 20 if "/big_" in name else 5
        assert (recipe.settings.average.last, recipe.settings.averages_by) == (averaged_checkpoints, "update")
        generate = recipe.settings.generate
        assert (generate["beam"], generate["lenpen"], generate["length-penalty-kind"]) == (4, 0.6, "gnmt")
        assert recipe.paper and all(each.measure == "BLEU" for each in recipe.paper), name


def test_an_update_has_the_papers_tokens_on_any_number_of_gpus() -> None:
    for name, (_, tokens, _) in PAPERS.items():
        for gpus in (1, 2, 3, 4, 8):
            if tokens // gpus < 1024:
                with pytest.raises(ValueError, match="use fewer GPUs"):
                    plan_batches(RECIPES[name].settings.train, gpus=gpus)
                continue
            planned = plan_batches(RECIPES[name].settings.train, gpus=gpus)
            assert planned and 0 <= tokens - planned.tokens < gpus * planned.update_freq
            assert 1024 <= planned.max_tokens <= 4096


def test_variants_that_are_compared_differ_only_in_what_their_names_and_the_paper_say() -> None:
    def configs(prefix: str, recipes: dict[str, Recipe], without: tuple[str, ...]) -> list[dict[str, Any]]:
        found = []
        for name, recipe in recipes.items():
            if name.startswith(prefix):
                config = {key: value for key, value in recipe.config.items() if key not in without}
                found.append({**config, "train": {k: v for k, v in config["train"].items() if k not in without}})
        return found

    of_papers = ("arch", "connection", "lr", "dropout", KEY, "max-update", "average")
    other_settings = ("multi30k_en_de/sas", "multi30k_en_de/1xskip_ln_sas_settings")
    same_settings = {name: recipe for name, recipe in RECIPES.items() if name not in other_settings}
    papers_images = {name: recipe for name, recipe in VISION.items() if "preact" in name and not is_ours(name)}
    for prefix, recipes, without in (
        *((family, RECIPES, of_papers) for family in ("iwslt15_en_vi", "wmt14_en_de", "wmt14_en_fr")),
        ("multi30k_en_de", same_settings, ("arch",)),
        ("multi30k_en_de", RECIPES, ("arch", "lr", "clip-norm", "bf16")),
        ("multi30k_sas", RECIPES, ("arch", "lr", "clip-norm", "connection", "user-dir")),
        ("multi30k_lr", RECIPES, ("arch", "lr")),
        ("cifar10_fast", RECIPES, ("connection", "decay")),
        ("cifar10_short", RECIPES, ("connection",)),
        ("cifar", papers_images, ("dataset", "depth", "connection")),
    ):
        first, *others = configs(prefix, recipes, without)
        assert others and all(other == first for other in others), prefix
    for name in other_settings:
        train = RECIPES[name].settings.train
        assert (train["lr"], train["clip-norm"]) == (2e-3, 1.0)
    for name, arch in ARCHITECTURES.items():
        for rate in RATES:
            train = RECIPES[f"multi30k_lr/{name}_lr{rate}"].settings.train
            assert (train["arch"], train["lr"]) == (f"transformer_{arch}_tiny", float(rate))


def is_ours(name: str) -> bool:
    """A training of images that no paper has."""
    return any(study in name for study in ("_fast/", "_short/", "_resnet20/"))


def hours(recipe: Recipe) -> tuple[float, bool]:
    """Of training in float32, from the speed at depth 20 (18 layers in blocks); whether it is the connection's own."""
    train = recipe.settings.train
    lines = map(json.loads, (ROOT / "study/results/benchmarks/vision_speed.jsonl").read_text().splitlines())
    measured = [line for line in lines if "connections" in line][-1]
    rates = {row["system"]: row["images_per_second"] for row in measured["connections"]["float32"]}
    speed = rates.get(train.connection, rates["1xskip"]) * 18 / (train.depth - 2)
    return train.iterations * train.batch_size / speed / 3600, train.connection in rates


def test_a_variant_of_images_is_what_its_name_and_the_papers_say() -> None:
    for name, recipe in VISION.items():
        if name.startswith(("field", "cifar10_resnet20_search")):
            continue
        match = re.fullmatch(r"(cifar\d+)(?:_fast|_short|_resnet20)?[/_]preact(\d+)[/_](\w+)", name)
        assert match, name
        dataset, depth, train = match[1], int(match[2]), recipe.settings.train
        connection = match[3].removesuffix("_no_norm_decay")
        assert train.decay == ("all" if match[3] == connection else "weights"), name
        assert train.shortcut_input == ("raw" if depth == 20 and is_ours(name) else "activated"), name
        assert (train.dataset, train.depth, train.connection) == (dataset, depth, CIFAR10[connection]), name
        written = yaml.safe_load(read_text(recipe))["variants"][recipe.variant]["train"]["connection"]
        assert written == str(parse_connection(written)), f"{name}: the file has the connection's canonical text"
        if is_ours(name):
            continue
        assert (train.batch_size, train.iterations, train.epochs) == (128, 64_000, None)
        assert (train.schedule, train.lr, train.milestones) == ("step", 0.1, (32_000, 48_000))
        assert (train.warmup_lr, train.warmup_iterations) == (0.01, 400)
        assert (train.momentum, train.nesterov, train.weight_decay) == (0.9, False, 2e-4)
        assert (train.shortcut, train.block, train.label_smoothing, train.clip_norm) == ("zero_pad", "basic", 0, None)
        assert train.precision == "bfloat16"
        if dataset == "cifar10":
            assert bool(recipe.paper) == (depth == 110), f"{name}: depth 20 is in no paper"
        head = rf"^  {re.escape(recipe.variant or '')}:  # "
        said = re.search(rf"{head}([\d.]+) hours( or more)?$", read_text(recipe), re.M)
        expected, own_speed = hours(recipe)
        assert said and float(said[1]) == pytest.approx(expected, rel=0.25) and bool(said[2]) != own_speed, name


def test_a_variant_of_captions_is_what_its_name_and_the_paper_say() -> None:
    for name, connection in COCO.items():
        cross_entropy, self_critical = (
            RECIPES[f"sas_table5/{name}_{stage}"] for stage in ("cross_entropy", "self_critical")
        )
        assert cross_entropy.settings.prepare.min_count == 5 and cross_entropy.paper == ()
        assert cross_entropy.settings.train["arch"] == f"captioning_transformer_{connection}"
        assert cross_entropy.settings.train == self_critical.settings.train
        assert list(self_critical.settings.stages()) == ["train", "self_critical"]
        assert len({each.measure for each in self_critical.paper}) == 8
    settings = [RECIPES[f"flickr8k/{name}"].settings for name in ("1xskip_ln", "2rskip_ln", "sas", "no_image")]
    assert [each.train["arch"].removeprefix("captioning_transformer_") for each in settings] == [
        "skip_ln_tiny",
        "rskip_ln_tiny",
        "sas_tiny",
        "skip_ln_tiny",
    ]
    assert len({str({**each.to_plain()["train"], "arch": ""}) for each in settings}) == 1
    assert [each.features.backbone for each in settings] == ["tf_efficientnet_lite0"] * 3 + ["constant"]


def test_a_variant_of_a_language_model_differs_in_its_connection_only_and_has_the_settings_of_nanogpt() -> None:
    defaults = TrainingSettings(connection="prenorm+ln")
    for name, connection in TEXT.items():
        settings = RECIPES[f"shakespeare_char/{name}"].settings
        assert settings.train == replace(defaults, connection=connection) and settings.data == "shakespeare-char"
    sizes = (defaults.layers, defaults.heads, defaults.features, defaults.context, defaults.batch_size)
    assert sizes == (4, 4, 128, 64, 12) and (defaults.iterations, defaults.warmup_iterations) == (2000, 100)
    assert (defaults.lr, defaults.final_lr, defaults.beta1, defaults.beta2) == (1e-3, 1e-4, 0.9, 0.99)
    assert (defaults.weight_decay, defaults.clip_norm, defaults.dropout, defaults.bias) == (0.1, 1.0, 0.0, False)


SMALL = [
    *("train.encoder-embed-dim=32", "train.encoder-ffn-embed-dim=64", "train.encoder-attention-heads=2"),
    *("train.decoder-attention-heads=2", "train.encoder-layers=2", "train.decoder-layers=2"),
    *("train.max-update=20", "train.save-interval-updates=10", "average.last=2"),
    *("train.warmup-updates=5", "train.lr=1e-2", f"train.{KEY}=1024", "train.max-tokens=512"),
    *("train.max-source-positions=500", "train.max-target-positions=500"),
]


@pytest.mark.slow
def test_the_commands_of_a_papers_variant_follow_each_other_and_twenty_updates_learn_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fairseq_program: Callable[..., Any]
) -> None:
    pytest.importorskip("fairseq")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(ROOT / "recipes/iwslt15_en_vi.yaml", variant="base_2rskip_ln", overrides=SMALL)
    run = Run(name="small", seed=1, settings=recipe.settings)
    (_, _, _, _, data, *_), *commands = recipe.task.commands(run)
    generator = random.Random(1)
    for split, count in (("train", 2000), ("valid", 100), ("test", 100)):
        sentences = [[f"w{generator.randrange(50)}" for _ in range(generator.randint(2, 20))] for _ in range(count)]
        for language, step in (("en", 1), ("vi", -1)):
            text = "".join(" ".join(sentence[::step]) + "\n" for sentence in sentences)
            (tmp_path / f"{split}.{language}").write_text(text)
    prefixes = [word for split in ("train", "valid", "test") for word in (f"--{split}pref", split)]
    preprocess = ["fairseq-preprocess", *("-s", "en", "-t", "vi", "--joined-dictionary", "--destdir", data), *prefixes]
    outputs = []
    for command in (preprocess, *commands):
        process = fairseq_program(*command, folder=tmp_path)
        assert process.returncode == 0, (command, process.stderr[-3000:])
        outputs.append(process.stdout)
    paths = [next(Path("runs/small/1/checkpoints").glob(f"checkpoint_*_{updates}.pt")) for updates in (10, 20)]
    early, late = (torch.load(path, weights_only=True) for path in paths)
    assert late["optimizer_history"][-1]["num_updates"] == 20
    assert late["cfg"]["model"].connection == "2rskip+ln"
    assert late["cfg"]["optimization"]["update_freq"] == [2]
    assert late["extra_state"]["val_loss"] < early["extra_state"]["val_loss"]
    averaged_from = torch.load("runs/small/1/averaged.pt", weights_only=True)["averaged_from"]
    assert averaged_from == [path.name for path in paths]
    assert sum(line.startswith("H-") for line in outputs[-1].splitlines()) == 100
