"""Provides language models and sequences of a text for `rskip analyse`. B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from rskip.checkpoint import untrained_language_model
from rskip.connections import ConnectionSpec
from rskip.language_modeling.data import SPLITS, TextData, load_data
from rskip.language_modeling.model_file import load_language_model, model_config
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.tokens import TextTokens
from rskip.settings.errors import SettingError
from rskip.tasks.subject import Batch, Conditions, Subject
from rskip.transformer import LanguageModel


def subject(model: ConnectionSpec | Path, *, depth: int | None, conditions: Conditions) -> Subject:
    """See `rskip.tasks.Work`. A new model has the size of nanoGPT's quick start, and `depth` layers."""
    tokens: TextTokens | None = None
    if isinstance(model, Path):
        loaded = load_language_model(model)
        network, tokens = loaded.model, loaded.tokens
    else:
        network = _at_initialisation(model, depth, conditions)
    return Subject(
        label=model.name if isinstance(model, Path) else str(model),
        depth=network.config.decoder_layers,
        model=network.eval().requires_grad_(),
        trained=isinstance(model, Path),
        data="language_modeling" if conditions.data is None else Path(conditions.data).name,
        batches=partial(_batches, network, tokens),
    )


def _at_initialisation(spec: ConnectionSpec, layers: int | None, conditions: Conditions) -> LanguageModel:
    default = TrainingSettings(connection=str(spec))
    settings = default if layers is None else replace(default, layers=layers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(conditions.seed)
        return untrained_language_model(model_config(settings, len(_find_data(conditions).tokens.dictionary)))


def _batches(model: LanguageModel, tokens: TextTokens | None, conditions: Conditions) -> Iterator[Batch]:
    """Sequences at random offsets, each as long as the model's context."""
    data = _find_data(conditions)
    if tokens is not None and tokens.dictionary.tokens != data.tokens.dictionary.tokens:
        advice = "give the data that the model was trained on"
        raise SettingError("data", f"is {data.path}, whose dictionary is not the model's", advice=advice)
    if conditions.split not in SPLITS:
        raise SettingError.of_value("split", conditions.split, " or ".join(SPLITS))
    text, context = data.splits[conditions.split], model.config.max_target_positions
    offsets = torch.tensor(
        conditions.choose(max(len(text) - context, 0), f"the sequences of {data.path}'s {conditions.split} text")
    )
    for chosen in offsets.split(conditions.batch_size):
        sequences = text[chosen[:, None] + torch.arange(context + 1)]
        inputs, targets = sequences[:, :-1], sequences[:, 1:]
        yield Batch(partial(_losses, model, inputs, targets), {"decoder": torch.ones_like(inputs, dtype=torch.bool)})


def _losses(model: LanguageModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of each sequence's tokens."""
    return F.cross_entropy(model(inputs).transpose(1, 2), targets, reduction="none").mean(1)


def _find_data(conditions: Conditions) -> TextData:
    if conditions.data is None:
        advice = "give the folder that `rskip prepare` made, such as data-bin/shakespeare-char"
        raise SettingError("data", "is missing", expected="a text for a language model", advice=advice)
    return load_data(conditions.data)
