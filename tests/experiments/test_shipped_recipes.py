"""Every recipe in recipes/: it loads, says what a recipe says, and fairseq takes its flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rskip.experiments.commands import generate_command, train_command
from rskip.experiments.recipe import load_recipe

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))


def test_there_are_recipes() -> None:
    assert {path.stem for path in RECIPES} >= {
        "numbers_en_de_demo",
        *(f"multi30k_en_de_{name}" for name in ("1xskip_ln", "2xskip_ln", "2rskip_ln", "sas")),
    }


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_states_its_command_result_and_time(path: Path) -> None:
    recipe = load_recipe(path)
    header = re.match(r"(#.*\n)+", path.read_text())
    assert header, "begins with a comment"
    assert f"#   rskip run recipes/{path.name}" in header[0]
    assert "Expected:" in header[0]
    assert (
        recipe.description and recipe.expected.metrics and recipe.expected.minutes and recipe.expected.machine
    )
    for value in recipe.expected.metrics.values():
        assert re.search(rf"\b{value:g}\b", header[0]), f"the header names another figure than {value}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_fairseq_takes_a_recipes_flags(path: Path, root: Path) -> None:
    options = pytest.importorskip("fairseq.options")
    recipe = load_recipe(path)
    data, folder = Path("data-bin"), Path("checkpoints")
    train = train_command(recipe.settings, data=data, checkpoints=folder, seed=1, gpu=False)
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    for flag, value in recipe.settings.train.items():
        parsed = getattr(args, flag.replace("-", "_"))
        parsed = parsed[0] if isinstance(parsed, list) else parsed
        assert str(parsed) == str(value), flag
    generate = generate_command(recipe.settings, data=data, checkpoint=Path("averaged.pt"), gpu=False)
    args = options.parse_args_and_arch(options.get_generation_parser(), generate[1:])
    assert args.beam == recipe.settings.generate.get("beam", 5)


def test_the_multi30k_recipes_differ_in_their_architecture_alone() -> None:
    configs = [load_recipe(path).config for path in RECIPES if path.stem.startswith("multi30k_en_de_")]
    architectures = {config["train"].pop("arch") for config in configs}
    assert len(architectures) == len(configs)
    assert all(config == configs[0] for config in configs)
