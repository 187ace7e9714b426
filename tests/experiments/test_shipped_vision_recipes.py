"""Every recipe recipes/cifar*.yaml: it loads, is what its name says, and has the papers' settings and figures."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rskip.connections import parse_connection
from rskip.experiments.recipe import Recipe, load_recipe

ROOT = Path(__file__).parents[2]
RECIPES = {path.stem: path for path in sorted((ROOT / "recipes").glob("cifar*.yaml"))}

# Names as recipes have them -> connection, and the published figures for depth 110 on CIFAR-10, typed from the tables.
SAS = "sas:alpha_bias=3,beta_bias=-3"
CIFAR10 = {
    "1xskip": ("1xskip", [("error", 6.31), ("error", 6.37), ("accuracy", 93.66)]),
    "2xskip": ("2xskip", [("error", 8.41)]),
    "3xskip": ("3xskip", [("error", 9.23)]),
    "1xskip_ln": ("1xskip+ln", [("error", 7.72)]),
    "2xskip_ln": ("2xskip+ln", [("error", 6.29)]),
    "3xskip_ln": ("3xskip+ln", [("error", 6.07)]),
    "2rskip_ln": ("2rskip+ln", [("error", 6.02)]),
    "3rskip_ln": ("3rskip+ln", [("error", 6.55)]),
    "0p5xskip": ("0.5xskip", [("error", 18.61)]),
    "0p5xskip_ln": ("0.5xskip+ln", [("error", 29.88), ("error", 24.98)]),
    "1xskip_ln_branch3": ("1xskip+ln:branch_scale=3", [("error", 61.02)]),
    "1xskip_bn": ("1xskip+bn", [("error", 8.23)]),
    "2xskip_bn": ("2xskip+bn", [("error", 6.43)]),
    "3xskip_bn": ("3xskip+bn", [("error", 6.50)]),
    "2rskip_bn": ("2rskip+bn", [("error", 6.77)]),
    "3rskip_bn": ("3rskip+bn", [("error", 6.68)]),
    "wskip_ln_init1": ("wskip+ln", [("error", 8.66)]),
    "wskip_ln_init2": ("wskip+ln:init=2", [("error", 6.45)]),
    "sas": (SAS, [("accuracy", 94.05)]),
    "sas_bn": ("sas+bn:alpha_bias=3,beta_bias=-3", [("accuracy", 93.23)]),
    "sas_gamma_free": (f"{SAS},gamma=free", [("accuracy", 93.95)]),
    "sas_no_norm_term": (f"{SAS},norm_term=false", [("accuracy", 93.82)]),
    "sas_gate_single_no_norm_term": (f"{SAS},gate=single,norm_term=false", [("accuracy", 92.73)]),
    "highway": ("highway", [("accuracy", 92.15)]),
    "highway_gate_single": ("highway:gate=single", [("accuracy", 92.73)]),
    "highway_gate_full": ("highway:gate=full", [("accuracy", 93.82)]),
}
CIFAR100 = {  # depth -> figures
    "1xskip": {20: [33.38], 32: [32.00], 44: [30.50], 56: [29.81], 110: [28.71, 71.29]},
    "2rskip_ln": {20: [32.99], 32: [31.39], 44: [29.85], 56: [28.98], 110: [27.69]},
    "sas": {20: [], 32: [], 44: [], 56: [], 110: [72.91]},
}
FAST = ("1xskip", "2rskip_ln")
PAPERS = [name for name in RECIPES if "_fast_" not in name]


def load(name: str) -> Recipe:
    return load_recipe(RECIPES[name])


def parts(name: str) -> tuple[str, int, str]:
    """Dataset, depth and the connection's name: `cifar10_preact110_2rskip_ln` -> cifar10, 110, 2rskip_ln."""
    match = re.fullmatch(r"(cifar\d+)_(?:fast_)?preact(\d+)_(\w+)", name)
    assert match, name
    return match[1], int(match[2]), match[3]


def test_there_is_a_recipe_for_every_row() -> None:
    assert set(RECIPES) == {
        *(f"cifar10_preact{depth}_{name}" for depth in (20, 110) for name in CIFAR10),
        *(f"cifar100_preact{depth}_{name}" for name, rows in CIFAR100.items() for depth in rows),
        *(f"cifar10_fast_preact20_{name}" for name in FAST),
    }


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_what_its_name_says(name: str) -> None:
    train = load(name).settings.train
    dataset, depth, connection = parts(name)
    assert (train.dataset, train.depth, train.connection) == (dataset, depth, CIFAR10[connection][0])
    written = yaml.safe_load(RECIPES[name].read_text())["train"]["connection"]
    assert written == str(parse_connection(written)), "the file has the connection's canonical text"


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_recipe_has_the_papers_settings(name: str) -> None:
    train = load(name).settings.train
    assert (train.batch_size, train.iterations, train.epochs) == (128, 64_000, None)
    assert (train.schedule, train.lr, train.milestones) == ("step", 0.1, (32_000, 48_000))
    assert (train.warmup_lr, train.warmup_iterations) == (0.01, 400)
    assert (train.momentum, train.nesterov, train.weight_decay) == (0.9, False, 2e-4)
    assert (train.shortcut, train.block, train.label_smoothing, train.clip_norm) == ("zero_pad", "basic", 0, None)
    assert train.precision == "bfloat16"


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipes_figures_are_the_papers(name: str) -> None:
    dataset, depth, connection = parts(name)
    figures = [(each.measure.removesuffix(", %"), each.figure) for each in load(name).paper]
    if dataset == "cifar10":
        assert figures == (CIFAR10[connection][1] if depth == 110 else []), "no paper has another depth on CIFAR-10"
    else:
        assert [figure for _, figure in figures] == CIFAR100[connection][depth]
        assert all(measure == ("error" if figure < 50 else "accuracy") for measure, figure in figures)


@pytest.mark.parametrize("family", ["cifar10_preact20", "cifar10_preact110", "cifar100_preact56", "cifar10_fast"])
def test_a_familys_recipes_differ_in_their_connection_alone(family: str) -> None:
    configs = [load(name).config for name in RECIPES if name.startswith(f"{family}_")]
    connections = {config["train"].pop("connection") for config in configs}
    assert len(connections) == len(configs) > 1
    assert all(config == configs[0] for config in configs)


def test_the_papers_recipes_differ_in_dataset_depth_and_connection_alone() -> None:
    configs = [load(name).config for name in PAPERS]
    for config in configs:
        for key in ("dataset", "depth", "connection"):
            del config["train"][key]
    assert all(config == configs[0] for config in configs)


def hours(recipe: Recipe, *, own_speed: bool) -> float:
    """Of training in float32, from the speed measured at depth 20, where 18 of the layers are in blocks."""
    train = recipe.settings.train
    lines = map(json.loads, (ROOT / "results/vision_speed.jsonl").read_text().splitlines())
    measured = [line for line in lines if "connections" in line][-1]
    rates = {row["system"]: row["images_per_second"] for row in measured["connections"]["float32"]}
    assert own_speed == (train.connection in rates)
    images = train.epochs * 50_000 if train.epochs else train.iterations * train.batch_size
    return images / (rates[train.connection if own_speed else "1xskip"] * 18 / (train.depth - 2)) / 3600


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_states_its_command_and_what_to_expect(name: str) -> None:
    recipe = load(name)
    header = re.match(r"(#.*\n)+", RECIPES[name].read_text())
    assert header, "begins with a comment"
    assert f"#   rskip run recipes/{name}.yaml --seeds 1 2 3" in header[0]
    assert recipe.description
    if recipe.paper:
        (said,) = re.findall(r"Paper: (.+?)\. (?:A figure|Figures) of the paper", header[0].replace("\n#", ""))
        assert said == "; ".join(f"{e.figure:.2f} % {e.measure.removesuffix(', %')} ({e.table})" for e in recipe.paper)
    if recipe.expected.metrics:
        assert "Expected:" in header[0] and recipe.expected.minutes and recipe.expected.machine
        for value in recipe.expected.metrics.values():
            assert re.search(rf"\b{value:g}\b", header[0]), f"the header names another figure than {value}"
    else:
        assert re.search(r"has (not|never) been run", header[0]) and "Time: not measured." in header[0]
        assert recipe.expected.minutes is None
        reckoned = re.search(r"Reckoned: about ([\d.]+) hours .* from (its own|1xskip's) speed", header[0])
        assert reckoned, "says how long it may take"
        assert (" hours or more " in header[0]) == (reckoned[2] != "its own"), "another connection takes longer"
        assert float(reckoned[1]) == pytest.approx(hours(recipe, own_speed=reckoned[2] == "its own"), rel=0.25)


@pytest.mark.parametrize(("script", "name"), [("cifar10", "preact110_2rskip_ln"), ("cifar100", "preact20_sas")])
def test_a_script_runs_the_recipe_that_it_is_given(
    script: str, name: str, tmp_path: Path, environment: Callable[..., dict[str, str]]
) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [ROOT / "scripts" / f"train-{script}.sh", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)

    process = run(name, "--dry-run", "--seeds", "7")
    assert process.returncode == 0, process.stderr
    train, evaluate = process.stdout.splitlines()
    assert f"recipes/{script}_{name}.yaml --seed 7 --output runs/{script}_{name}/7/training " in train
    assert evaluate.startswith(f"rskip vision evaluate runs/{script}_{name}/7/training")
    process = run()
    assert process.returncode == 2 and process.stderr.count("\n") == 1
    names = process.stderr.partition("expected one of ")[2].split()
    assert {f"{script}_{each}" for each in names} == {each for each in RECIPES if each.startswith(f"{script}_")}
