"""Settings and weights that the Transformers of Marian, M2M-100, NLLB, mBART and FSMT share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from torch import Tensor

from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.checkpoint.stock import from_stock
from rskip.settings.check import convert
from rskip.settings.kinds import Positions
from rskip.text.dictionary import Dictionary

MOST_UNNAMED = 1023  # rows behind the vocabulary's, of an embedding that was filled up to a multiple of 1,024
SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
SIDES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
TIED = (SHARED, *SIDES, OUTPUT)  # names of a table that is all four; files hold one of them
Activation = Literal["relu", "gelu", "tanh", "linear", "swish", "silu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"]
ACTIVATIONS = {
    **{name: name for name in ("relu", "gelu", "tanh", "linear", "swish")},
    "silu": "swish",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_accurate"),
}
# what belongs to tokens and positions
_APART = re.compile(
    r"model\.(shared|(encoder|decoder)\.embed_(tokens|positions)|decoder\.output_projection)\.weights?"
    r"|lm_head\.weight|final_logits_bias"
)


class StackSettings(msgspec.Struct, kw_only=True):
    """What config.json says of a model; the defaults are those of transformers."""

    d_model: int = 1024
    encoder_layers: int = 12
    encoder_ffn_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_layers: int = 12
    decoder_ffn_dim: int = 4096
    decoder_attention_heads: int = 16
    max_position_embeddings: Positions = 1024
    activation_function: Activation = "relu"
    scale_embedding: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = 1
    eos_token_id: int = 2


T = TypeVar("T", bound=msgspec.Struct)


def read_settings(folder: Folder, kind: type[T]) -> T:
    """The settings of a folder's model."""
    known = {name: folder.config[name] for name in kind.__struct_fields__ if folder.config.get(name) is not None}
    return convert(known, kind, source=str(folder.path / CONFIG))


def check_fairseq_order(config: StackSettings, folder: Folder, *, start: int | None = Dictionary.eos_index) -> None:
    """Refuses a model that numbers its padding and end otherwise than our dictionaries, or starts with another token.

    :param start: the token that decoding starts from.
    """
    order = {"pad_token_id": (config.pad_token_id, 1), "eos_token_id": (config.eos_token_id, 2)}
    if start is not None:
        order["decoder_start_token_id"] = start, Dictionary.eos_index
    for name, (found, expected) in order.items():
        if found != expected:
            raise folder.wrong(name, found, str(expected))


def stack_settings(config: StackSettings, *, connection: str, learned_positions: bool, **others: Any) -> dict[str, Any]:
    """Our settings of a model.

    :param others: settings of ours that config.json doesn't determine.
    """
    sides = {
        f"{side}_{ours}": value
        for side in ("encoder", "decoder")
        for ours, value in {
            "embed_dim": config.d_model,
            "ffn_embed_dim": getattr(config, f"{side}_ffn_dim"),
            "attention_heads": getattr(config, f"{side}_attention_heads"),
            "layers": getattr(config, f"{side}_layers"),
            "connection": connection,
            "learned_pos": learned_positions,
        }.items()
    }
    return {
        **sides,
        "activation_fn": ACTIVATIONS[config.activation_function],
        "no_scale_embedding": not config.scale_embedding,
        "max_source_positions": config.max_position_embeddings,
        "max_target_positions": config.max_position_embeddings,
        **others,
    }


def stack_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The layers' weights under our names."""
    layers = {name: each for name, each in weights.items() if not _APART.fullmatch(name)}
    return from_stock({name.removeprefix("model."): each for name, each in layers.items()})


def find_table(weights: Mapping[str, Tensor], names: Sequence[str], folder: Folder) -> Tensor:
    """The embedding (tokens, features) that the weights have under the first possible name."""
    for name in names:
        if name in weights:
            return weights[name]
    raise folder.error(f"the weights have no {names[0]}", expected="the weights of a translation model")


class Tables(NamedTuple):
    """The embeddings and the output projection of a model: (tokens, features) each."""

    source: Tensor
    target: Tensor
    output: Tensor

    def weights(self) -> dict[str, Tensor]:
        """Under our names."""
        return {
            "encoder.embed_tokens.weight": self.source,
            "decoder.embed_tokens.weight": self.target,
            "decoder.output_projection.weight": self.output,
        }

    def settings(self) -> dict[str, bool]:
        """Which of them are one."""
        tied = self.output is self.target
        return {"share_all_embeddings": tied and self.source is self.target, "share_decoder_input_output_embed": tied}


def shared_tables(weights: Mapping[str, Tensor], config: StackSettings, folder: Folder) -> Tables:
    """The tables of a model whose two sides have one vocabulary."""
    if config.tie_word_embeddings:
        table = find_table(weights, TIED, folder)
        return Tables(table, table, table)
    source, target = (find_table(weights, (side, SHARED), folder) for side in SIDES)
    return Tables(source, target, weights.get(OUTPUT, target))
