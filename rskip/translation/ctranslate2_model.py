"""Writes a vanilla Transformer (post-norm or pre-norm) in the format of CTranslate2. Needs the extra `ct2`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rskip.checkpoint import stock_connection
from rskip.checkpoint.stock import fold_connections
from rskip.connections.norms import EPS
from rskip.extras import extra
from rskip.text import Dictionary
from rskip.transformer import Transformer
from rskip.transformer.attention import MultiHeadAttention

with extra("ct2", what="export to CTranslate2"):
    from ctranslate2.converters import Converter
    from ctranslate2.converters.utils import fuse_linear
    from ctranslate2.specs import Activation, TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
    from ctranslate2.specs.common_spec import LinearSpec

_ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu_accurate": Activation.GELUTanh,
    "gelu_fast": Activation.GELUTanh,
    "tanh": Activation.Tanh,
    "swish": Activation.SWISH,
}


def write_ctranslate2(
    model: Transformer,
    folder: Path,
    *,
    source: Dictionary,
    target: Dictionary,
    quantization: str | None = None,
) -> None:
    """Writes the folder for `ctranslate2.Translator`, and replaces an existing one.

    Targets start with the model's start token, and sources end with the end token. The model's positions limit the
    length of sentences.

    :param quantization: number format of the weights, such as "int8"; None: float32.
    """
    if model.config.activation_fn not in _ACTIVATIONS:
        raise ValueError(
            f"CTranslate2 has no activation {model.config.activation_fn!r}, only {', '.join(_ACTIVATIONS)}: "
            "translate with `rskip translate`"
        )
    for dictionary in (source, target):
        _check_distinct(dictionary)
    converter = _TransformerConverter(fold_connections(model), source, target)
    converter.convert(str(folder), quantization=quantization, force=True)


class _TransformerConverter(Converter):
    def __init__(self, model: Transformer, source: Dictionary, target: Dictionary) -> None:
        self.model = model
        self.vocabularies = source, target

    @torch.no_grad()
    def _load(self) -> TransformerSpec:
        encoder, decoder, config = self.model.encoder, self.model.decoder, self.model.config
        spec = TransformerSpec(
            TransformerEncoderSpec(
                config.encoder_layers, config.encoder_attention_heads, **self._settings(config.encoder_connection)
            ),
            TransformerDecoderSpec(
                config.decoder_layers, config.decoder_attention_heads, **self._settings(config.decoder_connection)
            ),
        )
        _set_stack(spec.encoder, encoder, spec.encoder.embeddings[0], config.max_source_positions)
        _set_stack(spec.decoder, decoder, spec.decoder.embeddings, config.max_target_positions)
        for layer_spec, layer in zip(spec.decoder.layer, decoder.decoder_layers(), strict=True):
            query, memory, output = layer_spec.attention.linear
            _set_linear(query, layer.encoder_attn.q_proj)
            _set_fused(memory, layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)
            _set_linear(output, layer.encoder_attn.out_proj)
            _set_norm(layer_spec.attention.layer_norm, layer.encoder_attn_connection.norm)
        _set_linear(spec.decoder.projection, decoder.output_projection)

        source, target = self.vocabularies
        spec.register_source_vocabulary(source.tokens)
        spec.register_target_vocabulary(target.tokens)
        spec.config.decoder_start_token = spec.config.bos_token if config.start == "begin" else spec.config.eos_token
        spec.config.add_source_eos = True
        spec.config.layer_norm_epsilon = EPS
        return spec

    def _settings(self, connection: str) -> dict[str, Any]:
        config = self.model.config
        return {
            "pre_norm": connection == stock_connection(normalize_before=True),
            "activation": _ACTIVATIONS[config.activation_fn],
            "layernorm_embedding": config.layernorm_embedding,
        }


def _check_distinct(dictionary: Dictionary) -> None:
    if repeated := [token for token, count in Counter(dictionary.tokens).items() if count > 1]:
        raise ValueError(f"the dictionary has {repeated[0]!r} twice, which CTranslate2's vocabularies can't have")


def _set_stack(spec: Any, stack: Any, embeddings: Any, longest: int) -> None:
    """Sets the values that encoder and decoder share."""
    embeddings.weight = _values(stack.embed_tokens.weight)
    spec.scale_embeddings = stack.embed_scale
    spec.position_encodings.encodings = _values(stack.position_table(longest))
    if stack.layernorm_embedding is not None:
        _set_norm(spec.layernorm_embedding, stack.layernorm_embedding)
    if stack.layer_norm is not None:
        _set_norm(spec.layer_norm, stack.layer_norm)
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        attention: MultiHeadAttention = layer.self_attn
        projections, output = layer_spec.self_attention.linear
        _set_fused(projections, attention.q_proj, attention.k_proj, attention.v_proj)
        _set_linear(output, attention.out_proj)
        _set_norm(layer_spec.self_attention.layer_norm, layer.self_attn_connection.norm)
        _set_linear(layer_spec.ffn.linear_0, layer.fc1)
        _set_linear(layer_spec.ffn.linear_1, layer.fc2)
        _set_norm(layer_spec.ffn.layer_norm, layer.ffn_connection.norm)


def _set_linear(spec: LinearSpec, linear: nn.Linear) -> None:
    spec.weight = _values(linear.weight)
    if linear.bias is not None:
        spec.bias = _values(linear.bias)


def _set_fused(spec: LinearSpec, *linears: nn.Linear) -> None:
    parts = [LinearSpec() for _ in linears]
    for part, linear in zip(parts, linears, strict=True):
        _set_linear(part, linear)
    fuse_linear(spec, parts)


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _values(norm.weight)
    spec.beta = _values(norm.bias)


def _values(tensor: Tensor) -> Tensor:
    return tensor.detach().float()
