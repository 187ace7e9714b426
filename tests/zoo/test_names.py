"""Names of models: how they are made, found and listed."""

from __future__ import annotations

import dataclasses
import re

import pytest

from rskip.zoo.entry import ModelEntry
from rskip.zoo.names import find_model, list_models, model_name
from rskip.zoo.registry import read_registry

TEMPLATES = {each.task: each for each in read_registry().values()}


def model(name: str, task: str, connection: str) -> ModelEntry:
    return dataclasses.replace(TEMPLATES[task], name=name, connection=connection)


MODELS = {
    each.name: each
    for each in (
        model("transformer_tiny_2rskip_ln.multi30k.en-de", "translation", "2rskip+ln"),
        model("transformer_tiny_1xskip_ln.multi30k.en-de", "translation", "1xskip+ln"),
        model("preact_resnet20_2rskip_ln.cifar10", "image-classification", "2rskip+ln"),
        model("preact_resnet20_sas-gate_single.cifar100", "image-classification", "sas:gate=single"),
    )
}


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (
            {
                "architecture": "transformer_tiny",
                "connection": "2rskip+ln",
                "dataset": "multi30k",
                "languages": ("en", "de"),
            },
            "transformer_tiny_2rskip_ln.multi30k.en-de",
        ),
        (
            {"architecture": "preact_resnet20", "connection": "2RSKIP+LN", "dataset": "cifar10"},
            "preact_resnet20_2rskip_ln.cifar10",
        ),
        (
            {"architecture": "preact_resnet110", "connection": "0.5xskip", "dataset": "cifar100", "variant": "fast"},
            "preact_resnet110_0p5xskip.cifar100.fast",
        ),
        (
            {"architecture": "preact_resnet20", "connection": "sas:beta_bias=-3,alpha_bias=3", "dataset": "cifar10"},
            "preact_resnet20_sas-alpha_bias_3-beta_bias_m3.cifar10",
        ),
    ],
)
def test_a_name_is_made_of_its_parts_and_an_entry_takes_it(parts: dict[str, object], name: str) -> None:
    assert model_name(**parts) == name  # type: ignore[arg-type]
    assert dataclasses.replace(TEMPLATES["translation"], name=name).name == name


@pytest.mark.parametrize("variant", ["", "Fast", "two words", "a.b", "../x"])
def test_a_variant_is_a_word(variant: str) -> None:
    with pytest.raises(ValueError, match="expected a word of lower-case letters"):
        model_name(architecture="a", connection="sas", dataset="b", variant=variant)


@pytest.mark.parametrize(
    ("pattern", "task", "connection", "found"),
    [
        (None, None, None, sorted(MODELS)),
        ("cifar10", None, None, ["preact_resnet20_2rskip_ln.cifar10", "preact_resnet20_sas-gate_single.cifar100"]),
        ("*.cifar10", None, None, ["preact_resnet20_2rskip_ln.cifar10"]),
        ("*.CIFAR10", None, None, ["preact_resnet20_2rskip_ln.cifar10"]),
        (
            ["1xskip", "*.cifar100"],
            None,
            None,
            ["preact_resnet20_sas-gate_single.cifar100", "transformer_tiny_1xskip_ln.multi30k.en-de"],
        ),
        (None, "image-classification", "2rskip+ln", ["preact_resnet20_2rskip_ln.cifar10"]),
        (None, None, " 2RSKIP+LN ", ["preact_resnet20_2rskip_ln.cifar10", "transformer_tiny_2rskip_ln.multi30k.en-de"]),
        (None, None, "sas", []),
        ("multi30k", "image-classification", None, []),
    ],
)
def test_models_are_listed_by_pattern_task_and_connection(
    pattern: str | list[str] | None, task: str | None, connection: str | None, found: list[str]
) -> None:
    assert list_models(pattern, task, connection, models=MODELS) == found


def test_what_is_no_task_or_connection_is_named() -> None:
    with pytest.raises(ValueError, match="pattern is 5: expected text"):
        list_models(5, models=MODELS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"connection is \['1xskip'\]: expected"):
        list_models(connection=["1xskip"], models=MODELS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown task 'vision': expected translation or image-classification"):
        list_models(task="vision")
    with pytest.raises(ValueError, match=re.escape("(did you mean '2rskip+ln'?)")):
        list_models(connection="2rskp+ln")


def test_the_nearest_names_are_offered() -> None:
    assert find_model(MODELS, "preact_resnet20_2rskip_ln.cifar10").connection == "2rskip+ln"
    with pytest.raises(ValueError) as caught:
        find_model(MODELS, "Transformer_tiny_2rskip_ln.multi30k.en_de")
    assert str(caught.value).startswith(
        "no pretrained model 'Transformer_tiny_2rskip_ln.multi30k.en_de': did you mean "
        "transformer_tiny_2rskip_ln.multi30k.en-de or transformer_tiny_1xskip_ln.multi30k.en-de?"
    )
    with pytest.raises(ValueError, match="there are transformer_tiny_2rskip_ln.multi30k.en-de, transformer"):
        find_model(MODELS, "xyz")
    with pytest.raises(ValueError, match=r"a pretrained model's name is a string, not \['xyz'\]"):
        find_model(MODELS, ["xyz"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there are none"):
        find_model({}, "xyz")
