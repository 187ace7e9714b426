"""Converts between our models and fairseq's own `transformer`, of version 0.12.2 and earlier."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import cast

import torch
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.stock_names import LAYER, NORMS, POSTNORM, PRENORM
from rskip.connections import Connection, Fold, find_family, parse_connection
from rskip.connections.norms import EPS
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.undrawn import undrawn

_CONNECTIONS = {ours: stock for stock, ours in NORMS.items()}
# Without this mark of the version, fairseq would drop a stack's final `layer_norm`.
_STACK_VERSION = 3.0

# Names in early versions of fairseq.
# Queries, keys and values were one matrix (until 2019).
_IN_PROJECTION = re.compile(r"(.*\.(?:self|encoder)_attn)\.in_proj_(weight|bias)")
# Layer norms were numbered (until 2019).
_NUMBERED_NORM = re.compile(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)")
_NUMBERED_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
# Tables of sine and cosine, which the model computes itself.
_TABLE = re.compile(r"(encoder|decoder)\.embed_positions\.weights")
_PROJECTION = "decoder.output_projection.weight"

# Folding a connection changes the last map of a block's branch, and the connection's own parameters.
_LAST_MAP = re.compile(r"((encoder|decoder)\.layers\.\d+)\.(?:((?:self|encoder)_attn)\.out_proj|fc2)\.(weight|bias)")
_CONNECTION = re.compile(r"((encoder|decoder)\.layers\.\d+\.\w+_connection)\.(.+)\.(weight|bias)")
_NO_SETTINGS = (
    "source_vocabulary", "target_vocabulary", "padding_index", "encoder_connection", "decoder_connection",
    "value_residual", "output_bias", "start",
)  # fmt: skip


def from_old_stock(model: Mapping[str, Tensor], *, tied_output: bool) -> dict[str, Tensor]:
    """The tensors of any version of fairseq's own `transformer` under the names of fairseq 0.12.2, without copying.

    :param tied_output: whether the output projection is the decoder's embedding, which early versions saved only once.
    """
    renamed = dict(pair for name, tensor in model.items() for pair in _current(name, tensor))
    embedding = renamed.get("decoder.embed_tokens.weight")
    if tied_output and embedding is not None:
        renamed.setdefault(_PROJECTION, embedding)
    return renamed


def to_stock(model: Mapping[str, Tensor], *, connection: str) -> dict[str, Tensor]:
    """Our tensors under the names of fairseq's own `transformer`, for strict loading.

    :param connection: the model's connection: `1xskip+ln` or `prenorm+ln`.
    :raises ValueError: the connection is another one.
    """
    if connection not in (POSTNORM, PRENORM):
        raise ValueError(f"fairseq's own transformer has no connection {connection!r}, only {POSTNORM} and {PRENORM}")
    stock = {f"{stack}.version": torch.tensor([_STACK_VERSION]) for stack in ("encoder", "decoder")}
    stock.update({_stock_name(name): tensor for name, tensor in model.items()})
    return stock


def _stock_name(name: str) -> str:
    match = LAYER.fullmatch(name)
    if match and match[2] in _CONNECTIONS:
        return f"{match[1]}.{_CONNECTIONS[match[2]]}.{match[3]}"
    return name


def _current(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    if match := _IN_PROJECTION.fullmatch(name):
        for part, piece in zip("qkv", tensor.chunk(3), strict=True):
            yield f"{match[1]}.{part}_proj.{match[2]}", piece
    elif match := _NUMBERED_NORM.fullmatch(name):
        yield f"{match[1]}.{_NUMBERED_NORMS[match[2]][int(match[3])]}.{match[4]}", tensor
    elif name == "decoder.embed_out":
        yield _PROJECTION, tensor
    elif not _TABLE.fullmatch(name):
        yield name, tensor


def find_fold(connection: str) -> Fold:
    """The fold that turns this connection into one of fairseq's own `transformer`."""
    spec = parse_connection(connection)
    fold = spec.fold or Fold(str(spec))
    if fold.connection not in (POSTNORM, PRENORM):
        formula = find_family(spec.family).formula
        problem = f"{spec} ({formula}) can't be folded into LN(x + f) or x + F(LN(x))"
        raise SettingError("", problem, advice="use `rskip translate`")
    return fold


@torch.no_grad()
def fold_connections(model: Transformer) -> Transformer:
    """An equivalent model (up to eps) with `1xskip+ln` or `prenorm+ln`, in eval mode and without gradients."""
    value_residual = model.config.value_residual
    lacking = [f"value_residual {value_residual}: its layers use their own values"] * (value_residual != "none")
    norms = ((name, getattr(module, "eps", EPS)) for name, module in model.named_modules())
    lacking += [f"{name} with eps {eps}: its normalisations have {EPS}" for name, eps in norms if eps != EPS]
    if lacking:
        raise SettingError("", f"fairseq's own transformer has no {lacking[0]}", advice="use `rskip translate`")
    folds = {side: find_fold(getattr(model.config, f"{side}_connection")) for side in ("encoder", "decoder")}
    state = dict(_folded(model, name, tensor, folds) for name, tensor in model.state_dict().items())
    config = replace(
        model.config,
        encoder_connection=folds["encoder"].connection,
        decoder_connection=folds["decoder"].connection,
    )
    with undrawn():
        folded = Transformer(config).to(model.encoder.embed_tokens.weight)
    folded.load_state_dict({name: state[name] for name in folded.state_dict()})
    return folded.requires_grad_(False).eval()


def stock_checkpoint(model: Transformer, *, source_language: str | None, target_language: str | None) -> Checkpoint:
    """An equivalent checkpoint (up to eps) of fairseq's own `transformer`."""
    if model.config.output_bias or model.config.start != "end":
        given = f"output_bias={model.config.output_bias} or start={model.config.start!r}"
        problem = f"fairseq's own transformer has no {given}"
        raise SettingError("", problem, advice="use `rskip translate` or `rskip export ct2`")
    folded = fold_connections(model)
    config = {
        "arch": "transformer",
        "task": "translation",
        "source_lang": source_language,
        "target_lang": target_language,
        "model": _stock_settings(folded.config),
    }
    return Checkpoint(model=to_stock(folded.state_dict(), connection=folded.config.decoder_connection), config=config)


def _folded(model: Transformer, name: str, tensor: Tensor, folds: dict[str, Fold]) -> tuple[str, Tensor]:
    if match := _LAST_MAP.fullmatch(name):
        layer, side, branch, kind = match.groups()
        connection = cast(Connection, model.get_submodule(f"{layer}.{branch or 'ffn'}_connection"))
        factor = folds[side].factor_of(connection)
        return name, tensor * (factor[:, None] if isinstance(factor, Tensor) and kind == "weight" else factor)
    if match := _CONNECTION.fullmatch(name):
        member = folds[match[2]].renamed.get(match[3], match[3])
        return f"{match[1]}.{member}.{match[4]}", tensor
    return name, tensor


def _stock_settings(config: TransformerConfig) -> dict[str, object]:
    settings = {name: value for name, value in asdict(config).items() if name not in _NO_SETTINGS}
    for side in ("encoder", "decoder"):
        settings[f"{side}_normalize_before"] = getattr(config, f"{side}_connection") == PRENORM
    return settings
