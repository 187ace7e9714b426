"""Models that are a stock Transformer in other words: the same function with the connections that stock has."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import torch
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.stock import stock_connection, to_stock
from rskip.connections import Fold, find_family, parse_connection
from rskip.transformer import Transformer, TransformerConfig

POSTNORM, PRENORM = stock_connection(normalize_before=False), stock_connection(normalize_before=True)
_LAST_MAP = re.compile(r"(encoder|decoder)\.layers\.\d+\.((self|encoder)_attn\.out_proj|fc2)\.(weight|bias)")
_CONNECTION = re.compile(r"((encoder|decoder)\.layers\.\d+\.\w+_connection)\.(.+)\.(weight|bias)")
_NO_SETTINGS = ("source_vocabulary", "target_vocabulary", "padding_index", "encoder_connection", "decoder_connection")


def find_fold(connection: str) -> Fold:
    """How this connection becomes a stock Transformer's.

    :raises ValueError: it is another function; the message says which.
    """
    spec = parse_connection(connection)
    fold = spec.fold or Fold(str(spec))
    if fold.connection not in (POSTNORM, PRENORM):
        formula = find_family(spec.family).formula
        raise ValueError(f"{spec} ({formula}) can't be folded into LN(x + f) or x + F(LN(x)): use `rskip translate`")
    return fold


def fold_connections(model: Transformer) -> Transformer:
    """A model that computes the same up to eps, with `1xskip+ln` or `prenorm+ln`; eval mode, no gradients.

    :raises ValueError: a connection that no stock one equals.
    """
    folds = {side: find_fold(getattr(model.config, f"{side}_connection")) for side in ("encoder", "decoder")}
    state = dict(_folded(name, tensor, folds) for name, tensor in model.state_dict().items())
    config = replace(
        model.config,
        encoder_connection=folds["encoder"].connection,
        decoder_connection=folds["decoder"].connection,
    )
    with torch.random.fork_rng(devices=[]):  # drawing parameters that are then replaced must not show outside
        folded = Transformer(config).to(model.encoder.embed_tokens.weight)
    folded.load_state_dict(state)
    return folded.requires_grad_(False).eval()


def stock_checkpoint(model: Transformer, *, source_language: str | None, target_language: str | None) -> Checkpoint:
    """A checkpoint of fairseq's stock `transformer` that computes what the model does, up to eps.

    :raises ValueError: a connection that no stock one equals.
    """
    folded = fold_connections(model)
    config = {
        "arch": "transformer",
        "task": "translation",
        "source_lang": source_language,
        "target_lang": target_language,
        "model": _stock_settings(folded.config),
    }
    return Checkpoint(model=to_stock(folded.state_dict(), connection=folded.config.decoder_connection), config=config)


def _folded(name: str, tensor: Tensor, folds: dict[str, Fold]) -> tuple[str, Tensor]:
    if match := _LAST_MAP.fullmatch(name):
        return name, tensor * folds[match[1]].factor
    if match := _CONNECTION.fullmatch(name):
        member = folds[match[2]].renamed.get(match[3], match[3])
        return f"{match[1]}.{member}.{match[4]}", tensor
    return name, tensor


def _stock_settings(config: TransformerConfig) -> dict[str, object]:
    settings = {name: value for name, value in asdict(config).items() if name not in _NO_SETTINGS}
    for side in ("encoder", "decoder"):
        settings[f"{side}_normalize_before"] = getattr(config, f"{side}_connection") == PRENORM
    return settings
