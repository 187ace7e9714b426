"""fairseq's own `transformer`, of 0.12.2 and before: its parameters' names, and models of ours folded into it.

The names are ours but for the layer norms of residual blocks, which belong to connections here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import cast

import torch
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.connections import Connection, Fold, find_family, parse_connection
from rskip.connections.norms import EPS
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.undrawn import undrawn

# fairseq's name of a block's layer norm, and the connection that holds it here.
_NORMS = {
    "self_attn_layer_norm": "self_attn_connection.norm",
    "encoder_attn_layer_norm": "encoder_attn_connection.norm",
    "final_layer_norm": "ffn_connection.norm",
}
_CONNECTIONS = {ours: stock for stock, ours in _NORMS.items()}
_LAYER = re.compile(r"((?:encoder|decoder)\.layers\.\d+)\.(.+)\.(weight|bias)")
# fairseq 0.12.2's encoder layers hold copies of their own weights for a fused kernel; the other buffers mark
# versions and devices. Neither is part of the model.
_NOT_THE_MODEL = re.compile(
    r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
    r"|(encoder|decoder)\.(version|embed_positions\._float_tensor)"
)
# A stack of this version ends with `layer_norm` where it has one; without the mark fairseq would drop it.
_STACK_VERSION = 3.0

# Names of early versions.
# Queries, keys and values were one matrix (until 2019).
_IN_PROJECTION = re.compile(r"(.*\.(?:self|encoder)_attn)\.in_proj_(weight|bias)")
# Layer norms were numbered (until 2019).
_NUMBERED_NORM = re.compile(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)")
_NUMBERED_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
# Tables of sine and cosine, which the model computes.
_TABLE = re.compile(r"(encoder|decoder)\.embed_positions\.weights")
_PROJECTION = "decoder.output_projection.weight"

POSTNORM, PRENORM = "1xskip+ln", "prenorm+ln"
# What folding a connection changes: the last map of a block's branch, and the connection's own parameters.
_LAST_MAP = re.compile(
    r"((encoder|decoder)\.layers\.\d+)\.(?:((?:self|encoder)_attn)\.out_proj|fc2)\.(weight|bias)"
)
_CONNECTION = re.compile(r"((encoder|decoder)\.layers\.\d+\.\w+_connection)\.(.+)\.(weight|bias)")
_NO_SETTINGS = (
    "source_vocabulary", "target_vocabulary", "padding_index", "encoder_connection", "decoder_connection",
    "value_residual", "output_bias", "start",
)  # fmt: skip


def stock_connection(*, normalize_before: bool) -> str:
    """The connection that the blocks of fairseq's own `transformer` are: pre-norm or post-norm."""
    return PRENORM if normalize_before else POSTNORM


def from_stock(model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of fairseq's own `transformer`, not copied, under the names of our model with `stock_connection`."""
    return {_our_name(name): tensor for name, tensor in model.items() if not _NOT_THE_MODEL.fullmatch(name)}


def from_old_stock(model: Mapping[str, Tensor], *, tied_output: bool) -> dict[str, Tensor]:
    """The tensors of fairseq's own `transformer`, not copied, under the names of fairseq 0.12.2, from whatever version.

    :param tied_output: the output projection is the decoder's embedding; early versions did not save it twice.
    """
    renamed = dict(pair for name, tensor in model.items() for pair in _current(name, tensor))
    embedding = renamed.get("decoder.embed_tokens.weight")
    if tied_output and embedding is not None:
        renamed.setdefault(_PROJECTION, embedding)
    return renamed


def to_stock(model: Mapping[str, Tensor], *, connection: str) -> dict[str, Tensor]:
    """Our tensors under the names of fairseq's own `transformer`, as its strict loading wants them.

    :param connection: the model's: `1xskip+ln` or `prenorm+ln`.
    :raises ValueError: another connection, or a parameter that fairseq's own `transformer` lacks.
    """
    if connection not in (POSTNORM, PRENORM):
        raise ValueError(f"fairseq's own transformer has no connection {connection!r}, only {POSTNORM} and {PRENORM}")
    stock = {f"{stack}.version": torch.tensor([_STACK_VERSION]) for stack in ("encoder", "decoder")}
    stock.update({_stock_name(name): tensor for name, tensor in model.items()})
    return stock


def _our_name(name: str) -> str:
    match = _LAYER.fullmatch(name)
    if match and match[2] in _NORMS:
        return f"{match[1]}.{_NORMS[match[2]]}.{match[3]}"
    return name


def _stock_name(name: str) -> str:
    match = _LAYER.fullmatch(name)
    if match and match[2] in _CONNECTIONS:
        return f"{match[1]}.{_CONNECTIONS[match[2]]}.{match[3]}"
    if "_connection." in name:
        raise ValueError(f"fairseq's own transformer has no place for {name!r}")
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
    """How this connection becomes one of fairseq's own `transformer`.

    :raises SettingError: it is another function; the message says which.
    """
    spec = parse_connection(connection)
    fold = spec.fold or Fold(str(spec))
    if fold.connection not in (POSTNORM, PRENORM):
        formula = find_family(spec.family).formula
        problem = f"{spec} ({formula}) can't be folded into LN(x + f) or x + F(LN(x))"
        raise SettingError("", problem, advice="use `rskip translate`")
    return fold


@torch.no_grad()
def fold_connections(model: Transformer) -> Transformer:
    """A model that computes the same up to eps, with `1xskip+ln` or `prenorm+ln`; eval mode, no gradients.

    :raises SettingError: a connection that none of fairseq's own equals, a value residual, or another eps than 1e-5.
    """
    if model.config.value_residual != "none":
        name = f"value_residual {model.config.value_residual}"
        problem = f"{name} has no form in fairseq's own transformer, whose layers use their own values"
        raise SettingError("", problem, advice="use `rskip translate`")
    for name, module in model.named_modules():
        if getattr(module, "eps", EPS) != EPS:
            problem = f"{name}.eps is {module.eps}, but the normalisations of fairseq's own transformer have {EPS}"
            raise SettingError("", problem, advice=f"train a model with {EPS}")
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
    """A checkpoint of fairseq's own `transformer` that computes what the model does, up to eps.

    :raises SettingError: a connection that fairseq lacks, a value residual, an output bias, or another start.
    """
    if model.config.output_bias or model.config.start != "end":
        given = f"output_bias={model.config.output_bias} and start={model.config.start!r}"
        problem = f"{given} have no form in fairseq's own transformer"
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
