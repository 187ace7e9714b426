"""Names of models: how they are made, found and listed."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from rskip.zoo.publishing import model_name, variant_of
from rskip.zoo.registry import find_model, list_models, read_registry

TEMPLATES = {each.task: each for each in read_registry().values()}
EN_DE = "transformer_tiny_2rskip_ln.multi30k.en-de"
BASELINE = "transformer_tiny_1xskip_ln.multi30k.en-de"
CIFAR10 = "preact_resnet20_2rskip_ln.cifar10"
CIFAR100 = "preact_resnet20_sas-gate_single.cifar100"
MODELS = {
    name: msgspec.structs.replace(TEMPLATES[task], name=name, connection=connection)
    for name, task, connection in (
        (EN_DE, "translation", "2rskip+ln"),
        (BASELINE, "translation", "1xskip+ln"),
        (CIFAR10, "vision", "2rskip+ln"),
        (CIFAR100, "vision", "sas:gate=single"),
    )
}


def test_a_name_is_made_of_its_parts_and_an_entry_takes_it() -> None:
    cases: list[tuple[tuple[str, str, str], dict[str, Any], str]] = [
        (("transformer_tiny", "2rskip+ln", "multi30k"), {"languages": ("en", "de")}, EN_DE),
        (("preact_resnet20", "2RSKIP+LN", "cifar10"), {}, CIFAR10),
        (("preact_resnet110", "0.5xskip", "cifar100"), {"variant": "fast"}, "preact_resnet110_0p5xskip.cifar100.fast"),
        (
            ("preact_resnet20", "sas:beta_bias=-3,alpha_bias=3", "cifar10"),
            {},
            "preact_resnet20_sas-alpha_bias_3-beta_bias_m3.cifar10",
        ),
    ]
    for (architecture, connection, dataset), further, name in cases:
        assert model_name(architecture=architecture, connection=connection, dataset=dataset, **further) == name
        entry = msgspec.structs.replace(TEMPLATES["translation"], name=name)
        assert variant_of(entry) == further.get("variant")


def test_models_are_listed_by_pattern_task_and_connection() -> None:
    cases: list[tuple[Any, str | None, str | None, list[str]]] = [
        (None, None, None, sorted(MODELS)),
        ("cifar10", None, None, [CIFAR10, CIFAR100]),
        ("*.CIFAR10", None, None, [CIFAR10]),
        (["1xskip", "*.cifar100"], None, None, [CIFAR100, BASELINE]),
        (None, "vision", "2rskip+ln", [CIFAR10]),
        (None, None, " 2RSKIP+LN ", [CIFAR10, EN_DE]),
        (None, None, "sas", []),
        ("multi30k", "vision", None, []),
    ]
    for pattern, task, connection, found in cases:
        assert list_models(pattern, task, connection, models=MODELS) == found


def test_the_nearest_names_are_offered() -> None:
    assert find_model(MODELS, CIFAR10).connection == "2rskip+ln"
    near = f"no pretrained model 'Transformer_tiny_2rskip_ln.multi30k.en_de' (did you mean {EN_DE} or {BASELINE}?)"
    for name, message in ((EN_DE.capitalize().replace("-", "_"), near), ("xyz", "'xyz': `rskip zoo list` lists all 4")):
        with pytest.raises(ValueError, match=re.escape(message)):
            find_model(MODELS, name)
