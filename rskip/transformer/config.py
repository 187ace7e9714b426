"""The hyper-parameters of an encoder-decoder Transformer."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rskip.connections import parse_connection

_TYPES = {"int": int, "bool": bool, "str": str}
ACTIVATIONS = ("relu", "gelu", "gelu_accurate", "gelu_fast", "tanh", "linear", "swish")


@dataclass(frozen=True)
class TransformerConfig:
    """Everything that decides a Transformer's shape. Fields are named as fairseq's flags.

    `encoder_connection` and `decoder_connection` are specs of `rskip.connections`, such as "2rskip+ln". Vocabulary
    sizes count every symbol of the dictionary, special ones included. Raises `ValueError` where fields contradict.
    """

    source_vocabulary: int
    target_vocabulary: int
    padding_index: int = 1
    encoder_embed_dim: int = 512
    encoder_ffn_embed_dim: int = 2048
    encoder_attention_heads: int = 8
    encoder_layers: int = 6
    encoder_learned_pos: bool = False
    decoder_embed_dim: int = 512
    decoder_ffn_embed_dim: int = 2048
    decoder_attention_heads: int = 8
    decoder_layers: int = 6
    decoder_learned_pos: bool = False
    encoder_connection: str = "1xskip+ln"
    decoder_connection: str = "1xskip+ln"
    activation_fn: str = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    encoder_layerdrop: float = 0.0
    decoder_layerdrop: float = 0.0
    share_decoder_input_output_embed: bool = False
    share_all_embeddings: bool = False
    no_scale_embedding: bool = False
    no_token_positional_embeddings: bool = False
    layernorm_embedding: bool = False
    max_source_positions: int = 1024
    max_target_positions: int = 1024
    checkpoint_activations: bool = False

    def __post_init__(self) -> None:
        for name in ("source_vocabulary", "target_vocabulary"):
            if getattr(self, name) <= self.padding_index:
                raise ValueError(f"{name}={getattr(self, name)}: expected more than padding_index={self.padding_index}")
        for side in ("encoder", "decoder"):
            embed_dim, heads = getattr(self, f"{side}_embed_dim"), getattr(self, f"{side}_attention_heads")
            if embed_dim < 1 or heads < 1 or embed_dim % heads:
                raise ValueError(
                    f"{side}_embed_dim={embed_dim} does not divide into {side}_attention_heads={heads}: "
                    "choose a multiple of the number of heads"
                )
            sinusoidal = not (self.no_token_positional_embeddings or getattr(self, f"{side}_learned_pos"))
            if embed_dim % 2 and sinusoidal:
                raise ValueError(f"{side}_embed_dim={embed_dim} is odd: sinusoidal positions need an even number")
            if getattr(self, f"{side}_layers") < 1:
                raise ValueError(f"{side}_layers={getattr(self, f'{side}_layers')}: expected at least 1")
            parse_connection(getattr(self, f"{side}_connection"))
        for name in ("dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected a probability in [0, 1)")
        if self.activation_fn not in ACTIVATIONS:
            raise ValueError(f"activation_fn={self.activation_fn!r}: expected one of {', '.join(ACTIVATIONS)}")
        if self.share_all_embeddings and (
            self.source_vocabulary != self.target_vocabulary or self.encoder_embed_dim != self.decoder_embed_dim
        ):
            raise ValueError(
                "share_all_embeddings needs one joint dictionary and equal embedding sizes, but source and target have "
                f"{self.source_vocabulary} and {self.target_vocabulary} symbols of "
                f"{self.encoder_embed_dim} and {self.decoder_embed_dim} features"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformerConfig:
        """The configuration that `to_dict` gave.

        :raises ValueError: a value of another type, or an unknown key; the nearest known one is named.
        """
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
                raise ValueError(f"unknown key {key!r} in a TransformerConfig: {hint}")
        for field in fields(cls):
            kinds = (float, int) if field.type == "float" else (_TYPES[str(field.type)],)
            if field.name in values and type(values[field.name]) not in kinds:
                raise ValueError(f"{field.name}={values[field.name]!r}: expected {kinds[0].__name__}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, ready for JSON."""
        return asdict(self)
