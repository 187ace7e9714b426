"""Specs, options and settings of any value."""

from __future__ import annotations

import json
import string
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st

from rskip.captioning.config import CaptioningConfig
from rskip.captioning.options import FeatureSettings
from rskip.connections import HOST_NEEDS, Place, build_connection, build_stack_connection, parse_connection
from rskip.corpora import PrepareOptions
from rskip.experiments.recipe import load_recipes
from rskip.formulas import ConnectionSpec
from rskip.generation import SearchOptions
from rskip.settings.check import convert
from rskip.settings.text import parse_json, parse_overrides, parse_yaml
from rskip.text import TextConfig
from rskip.transformer import TransformerConfig
from rskip.translation.options import BatchSettings, CpuSettings
from rskip.vision import preact_resnet
from rskip.vision.settings import TrainingSettings
from tests.fuzz.contract import holds
from tests.fuzz.values import deep, given, values

ROOT = Path(__file__).parents[2]
PARTS = [
    "rskip", "xskip", "sas", "prenorm", "highway", "wskip", "2", "-1", "1e999", ".5", "+", "ln", "bn", "rms", ":", "=",
    ",", "gate", "single", "init", "branch_scale", "9" * 30, "true", " ", "λ", "deepnorm", "layerscale", "mixln",
    "laurel", "hyper", "mhc", "b2t", "denseformer", "attnres", "blocks", "streams", "form", "static", "rw", "ratio",
    "rank", "3", "subln", "normformer", "res_scale", "hybridnorm", "first",
    "mhc_lite", "x0", "gpas", "orthogonal", "ngpt", "ddl", "mudd", "frac", "parts", "residual", "identity",
]  # fmt: skip
PLACE = Place("encoder", "ffn", 2, 4, 1, 2, 2)
specs = st.lists(st.sampled_from(PARTS), max_size=8).map("".join) | st.text(string.printable, max_size=30)


@example("9999999rskip+ln")
@example("1" * 10**6 + "!")
@example("hyper:streams=64")
@example("mixln:ratio=-0.0")
@given(specs | values)
def test_specs(spec: Any) -> None:
    parsed = holds(parse_connection, spec)
    if isinstance(parsed, ConnectionSpec):
        assert parse_connection(str(parsed)) == parsed
    for feature_dim in (-1, 1):
        for place in (None, PLACE):
            given = {"feature_dim": feature_dim, "place": place, "host_supplies": HOST_NEEDS}
            connection = holds(build_connection, spec, 2, **given)
            if isinstance(connection, torch.nn.Module):
                x = torch.ones(2, 2, 2, 2)
                if connection.passes_x:
                    assert connection(x, x).shape == x.shape
                else:
                    stack = build_stack_connection(spec, 2)
                    given, kept = connection.before(stack.enter(x))
                    assert stack.leave(connection.after(kept, given)).shape == x.shape


@given(values, values)
def test_sizes_of_connections(features: Any, feature_dim: Any) -> None:
    if not (isinstance(features, int) and features > 1000):
        holds(build_connection, "1xskip+ln", features, feature_dim=feature_dim)


KINDS: list[tuple[type, dict[str, Any]]] = [
    (SearchOptions, {}),
    (BatchSettings, {}),
    (CpuSettings, {}),
    (PrepareOptions, {}),
    (FeatureSettings, {}),
    (TrainingSettings, {}),
    (TextConfig, {"source_language": "en", "target_language": "de"}),
    (TransformerConfig, {"source_vocabulary": 9, "target_vocabulary": 9}),
    (CaptioningConfig, {"vocabulary": 9, "feature_dim": 4}),
]


def names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)] if is_dataclass(kind) else list(kind.__struct_fields__)  # type: ignore


@st.composite
def changes(draw: st.DrawFn) -> tuple[type, dict[str, Any]]:
    """A type of settings, and values for some of its fields."""
    kind, needed = draw(st.sampled_from(KINDS))
    given = draw(st.dictionaries(st.sampled_from(names(kind)), values, max_size=3))
    return kind, {**needed, **given}


@example((SearchOptions, {"length_penalty": 1000.0}))
@example((SearchOptions, {"beam": 10**20}))
@example((SearchOptions, {"max_length_a": 1e9}))
@example((TransformerConfig, {"source_vocabulary": 9, "target_vocabulary": 9, "encoder_layers": "8"}))
@example((TransformerConfig, {"source_vocabulary": 9, "target_vocabulary": 9, "max_source_positions": float("nan")}))
@example((TransformerConfig, {"source_vocabulary": 9, "target_vocabulary": 9, "activation_fn": []}))
@given(changes())
def test_options(change: tuple[type, dict[str, Any]]) -> None:
    kind, given = change
    made = holds(kind, **given)
    read = holds(convert, given, kind)
    assert isinstance(made, kind) == isinstance(read, kind)
    if isinstance(made, kind):
        json.dumps(msgspec.to_builtins(made)), repr(made)


def test_values_that_python_can_not_show() -> None:
    for value in (deep(5000), 10**5000):
        for change in ({"dropout": value}, {value if isinstance(value, int) else "x": 1}):
            holds(convert, {"source_vocabulary": 9, "target_vocabulary": 9, **change}, TransformerConfig)


IMAGES = ["depth", "connection", "num_classes", "shortcut", "shortcut_input", "block"]


@example({"depth": 10**9 + 2})
@example({"num_classes": 10**12})
@given(st.dictionaries(st.sampled_from(IMAGES), values))
def test_images_models(given: dict[str, Any]) -> None:
    holds(preact_resnet, **{"depth": 8, **given})


YAML = [
    "[", "]", "{", "}", "a", ": ", "- ", "\n", "  ", "&a ", "*a", "!!", "!!int ", "!!timestamp ", "? ", "|", "'", '"',
    "1", "e", "2001-99-99", "#", "%", "---\n", "<<: ", "\t", "\0", "é", "\ud800", ".nan", "0x",
]  # fmt: skip


@example("[" * 5000)
@example("&a [*a]")
@example("!!timestamp x")
@example("!!bool x")
@example("1" * 5000)
@example("0x" + "f" * 5000)
@given(st.lists(st.sampled_from(YAML), max_size=15).map("".join) | st.text(max_size=30))
def test_yaml_and_json(text: str) -> None:
    for parse in (parse_yaml, parse_json):
        holds(parse, text, source="here")
    holds(parse_overrides, [text])


RECIPES = [
    ("multi30k_en_de", ["corpus", "prepare", "train", "average", "generate", "evaluate"]),
    ("cifar10_fast", ["dataset", "train", "variants", "expected", "paper", "kind"]),
    ("flickr8k", ["features", "train", "generate", "checkpoint", "self_critical", "evaluate"]),
]
INNER = ["", ".lr", ".arch", ".beam", ".split", ".size", ".last", ".max-epoch", ".connection", ".user-dir", ".x.y"]


@example((0, ["evaluate.split=../x"]))
@example((0, ["generate.beam=0"]))
@example((0, ["train=" + "[" * 5000]))
@given(
    st.tuples(
        st.integers(0, len(RECIPES) - 1),
        st.lists(st.tuples(st.integers(0, 7), st.sampled_from(INNER), values), min_size=1, max_size=2),
    )
)
def test_overrides_of_recipes(change: tuple[int, list[Any]]) -> None:
    name, keys = RECIPES[change[0]]
    texts = [
        each if isinstance(each, str) else f"{keys[each[0] % len(keys)]}{each[1]}={written(each[2])}"
        for each in change[1]
    ]
    assert (path := ROOT / "recipes" / f"{name}.yaml").is_file()
    found = holds(load_recipes, path, overrides=texts)
    for recipe in found if isinstance(found, list) else []:
        assert recipe.address and json.dumps(recipe.config)


def written(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError:  # more digits than Python writes
        return "1" * 5000


@pytest.mark.parametrize("name", ["multi30k_en_de", "cifar10_fast", "flickr8k"])
def test_recipes(name: str, tmp_path: Path) -> None:
    whole = (ROOT / "recipes" / f"{name}.yaml").read_text()

    @given(st.integers(0, len(whole)), st.integers(0, 30), st.text(max_size=5) | st.sampled_from(YAML))
    def changed(start: int, removed: int, added: str) -> None:
        path = tmp_path / "recipe.yaml"
        path.write_bytes((whole[:start] + added + whole[start + removed :]).encode("utf-8", "surrogatepass"))
        holds(load_recipes, path)

    changed()
