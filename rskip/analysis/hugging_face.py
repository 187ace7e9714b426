"""Provides a Hugging Face causal language model and sequences of tokens for `rskip analyse`. B sequences, T tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rskip.nn import adapt, adaptation, from_pretrained, own_specs
from rskip.nn.hosts.transformers_model import SPEC
from rskip.settings.errors import SettingError
from rskip.tasks.subject import Batch, Conditions, Subject

LENGTH = 128  # tokens of a sequence, if the model takes as many


def is_hugging_face(path: Path) -> bool:
    """Whether the path is a folder with the configuration of a model of transformers."""
    try:
        return "model_type" in json.loads((path / "config.json").read_bytes())
    except (OSError, ValueError, TypeError):  # no folder, or not a dictionary: the tasks say what is wrong
        return False


def subject(folder: Path, conditions: Conditions) -> Subject:
    """A model that `rskip.adapt` changed, or one of the library's own that carries streams (`rskip.nn.own_specs`).

    Its weights are random if the folder has only a configuration.

    :raises SettingError: transformers can't read the folder, or the model has no connection that rskip knows.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(conditions.seed)
        model, trained = _loaded(folder)
    return Subject(
        label=folder.name,
        depth=model.config.get_text_config().num_hidden_layers,
        model=model.eval().requires_grad_(),
        trained=trained,
        data="random tokens" if conditions.data is None else Path(conditions.data).name,
        batches=partial(_batches, model, folder),
        splits=False,
    )


def _loaded(folder: Path) -> tuple[Any, bool]:
    """The model, and whether the folder has its weights."""
    try:
        import transformers
    except ImportError as error:
        raise SettingError("model", "needs transformers", advice="pip install transformers") from error
    trained = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    kind: Any = transformers.AutoModelForCausalLM
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        if trained and hasattr(config, SPEC):
            model: Any = from_pretrained(kind, folder, dtype=torch.float32)
        elif trained:
            model = kind.from_pretrained(folder, dtype=torch.float32)
        else:
            model = kind.from_config(config)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingError("model", f"is {folder}, which transformers can't load: {reason}") from error
    if adaptation(model) is None:
        own = next(iter(own_specs(model).values()), None)
        if own is None:
            expected = "a model that rskip.adapt changed, or one that carries streams"
            raise SettingError.of_value("model", str(folder), expected)
        adapt(model, own)
    return model, trained


def _batches(model: Any, folder: Path, conditions: Conditions) -> Iterator[Batch]:
    """Sequences of the text file `data`, at random offsets; without one, of random tokens."""
    config = model.config.get_text_config()
    length = min(LENGTH, getattr(config, "max_position_embeddings", None) or LENGTH)
    generator = torch.Generator().manual_seed(conditions.seed)
    if conditions.data is None:
        tokens = torch.randint(config.vocab_size, (conditions.examples, length + 1), generator=generator)
    else:
        from transformers import AutoTokenizer

        text = Path(conditions.data).read_text(encoding="utf-8")
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError) as error:
            advice = "leave the data out, for random tokens"
            raise SettingError("model", f"is {folder}, which has no tokenizer", advice=advice) from error
        all_ = torch.tensor(tokenizer(text)["input_ids"])
        offsets = torch.tensor(conditions.choose(max(len(all_) - length, 0), f"the sequences of {conditions.data}"))
        tokens = all_[offsets[:, None] + torch.arange(length + 1)]
    for chosen in tokens.split(conditions.batch_size):
        yield Batch(partial(_losses, model, chosen))


def _losses(model: Any, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of each sequence's tokens."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits.float()
    return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
