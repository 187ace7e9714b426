"""Training a translation model of ours further, on other data (`rskip train --from`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.checkpoint.config_file import WEIGHTS, read_config
from rskip.corpora.like import check_model_folder
from rskip.corpora.prepared import PreparedPairs
from rskip.settings.errors import SettingError
from rskip.tasks.fairseq.flags import Flag
from rskip.text.dictionary import Dictionary
from rskip.text.tokenizer import Tokenizer
from rskip.transformer.architectures import SIZES, architecture_of
from rskip.transformer.config import TransformerConfig

START = "start.pt"
_SLOWER = 5  # the learning rate of a new training, over that of a further one
_OF_SIDES = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers", "learned_pos")
_OF_MODEL = (
    "connection", "encoder_connection", "decoder_connection", "share_all_embeddings",
    "share_decoder_input_output_embed", "activation_fn", "layernorm_embedding", "no_scale_embedding",
    "no_token_positional_embeddings", "output_bias", "start",
)  # fmt: skip
_LENGTHS = ("max_source_positions", "max_target_positions")


def model_flags(model: Path, data: PreparedPairs) -> dict[str, Flag]:
    """fairseq-train's flags for the model's architecture.

    :param model: a folder that `rskip train`, `rskip import` or publishing wrote.
    :raises SettingError: it is no such folder, no architecture has its connections, or it has other dictionaries.
    """
    check_model_folder("start", model)
    tokenizer, config = Tokenizer.load(model), read_config(model / WEIGHTS)
    settings: Mapping[str, Any] = config["model"]
    if (arch := architecture_of(config)) is None:
        problem, advice = f"is {model}, whose architecture is {config['arch']}", "give a model that `rskip train` wrote"
        raise SettingError("start", problem, advice=advice)
    for language, expected in ((data.source, tokenizer.source), (data.target, tokenizer.target)):
        if Dictionary.load(data.path / f"dict.{language}.txt").tokens != expected.tokens:
            advice = f"prepare the text with --like {model}"
            raise SettingError("start", f"is {model}, which has another dictionary than {data.path}", advice=advice)
    names = [f"{side}_{name}" for side in ("encoder", "decoder") for name in _OF_SIDES]
    values = {name: settings[name] for name in (*names, *_OF_MODEL) if settings.get(name) is not None}
    usual = TransformerConfig.max_source_positions
    values |= {name: settings[name] for name in _LENGTHS if settings.get(name, usual) != usual}
    return {"arch": arch, **{name.replace("_", "-"): value for name, value in values.items()}}


def size_of(flags: Mapping[str, Flag]) -> str:
    """The size whose batches and schedule suit the architecture."""
    features = int(flags["encoder-embed-dim"] or 0)
    return min(SIZES, key=lambda name: abs(SIZES[name].features - features))


def further(train: Mapping[str, Flag], flags: Mapping[str, Flag], start: Path) -> dict[str, Flag]:
    """The flags of a further training: the architecture's, with a lower learning rate.

    :param train: the flags of a new training. :param start: the checkpoint to start from, `write_start`'s.
    """
    rate = float(train["lr"] or 0) / _SLOWER
    kept = {name: value for name, value in train.items() if name != "connection"}
    return {**kept, **flags, "lr": rate, "finetune-from-model": str(start)}


def write_start(model: Path, path: Path, *, arch: str) -> None:
    """Writes the model as a checkpoint of fairseq's, which a training can start from.

    :param arch: the architecture that the training names; fairseq doesn't know those of imported models.
    """
    checkpoint = read_checkpoint(model / WEIGHTS)
    checkpoint.config["arch"] = arch
    write_checkpoint(path, checkpoint)
