"""Connections in a Hugging Face model: what a checkpoint lacks gets its initial value, what it has is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rskip.formulas import registry
from rskip.nn import init_missing
from tests.connections.every_connection import FAMILIES, built_for, specs_of

transformers = pytest.importorskip("transformers", minversion="5.0")


class Config(transformers.PreTrainedConfig):
    model_type = "of_a_test"


class Stock(transformers.PreTrainedModel):
    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.branch = nn.Linear(4, 4)
        self.post_init()


class WithConnections(transformers.PreTrainedModel):
    """Has all connections, and initialises them as docs/own_model.md says."""

    config_class: Any = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.branch = nn.Linear(4, 4)
        self.connections = nn.ModuleList(build() for build in every_builder())
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        init_missing(module)


def every_builder() -> Iterator[Any]:
    for family in FAMILIES:
        for spec in dict.fromkeys(specs_of(registry.find_family(family))):
            yield from (built_for(spec)[0], built_for(spec)[-1])


@pytest.fixture
def nan_in_new_memory() -> Iterator[None]:
    """What is allocated and not set is NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_what_a_checkpoint_lacks_starts_as_built(tmp_path: Path, nan_in_new_memory: None):
    stock = Stock(Config())
    stock.save_pretrained(tmp_path)
    loaded = WithConnections.from_pretrained(tmp_path)
    assert torch.equal(loaded.branch.weight, stock.branch.weight)
    for connection, build in zip(loaded.connections, every_builder(), strict=True):
        first, second = build().state_dict(), build().state_dict()
        for name, value in connection.state_dict().items():
            if torch.equal(first[name], second[name]):
                assert torch.equal(value, first[name]), (connection, name)
            else:
                assert value.isfinite().all() and 0.5 < value.std() / first[name].std() < 2, (connection, name)


def test_what_a_checkpoint_has_is_loaded(tmp_path: Path, nan_in_new_memory: None):
    trained = WithConnections(Config())
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(1)
    trained.save_pretrained(tmp_path, state_dict={
        name: value for name, value in trained.state_dict().items() if not name.endswith("hidden.weight")
    })  # fmt: skip
    loaded = WithConnections.from_pretrained(tmp_path)
    for name, value in loaded.state_dict().items():
        if name.endswith("hidden.weight"):
            assert value.isfinite().all() and value.mean().abs() < 0.1
        else:
            assert torch.equal(value, trained.get_parameter_or_buffer(name)), name
