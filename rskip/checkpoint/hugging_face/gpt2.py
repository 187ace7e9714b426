"""Reads the weights of Hugging Face's GPT2LMHeadModel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.folder import Folder
from rskip.checkpoint.hugging_face.language_models import language_model_of, refuse_settings
from rskip.checkpoint.hugging_face.stacks import ACTIVATIONS, OUTPUT, read_settings

_EMBEDDING = "decoder.embed_tokens.weight"
_NAMES = {
    "wte.weight": _EMBEDDING,
    "wpe.weight": "decoder.embed_positions.weight",
    "ln_f.weight": "decoder.layer_norm.weight",
    "ln_f.bias": "decoder.layer_norm.bias",
    OUTPUT: "decoder.output_projection.weight",
}
_PART = re.compile(r"h\.(\d+)\.(\w+(?:\.c_\w+)?)\.(weight|bias)")
_MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # buffers in files of early versions
_NORMS = {"ln_1": "self_attn_connection.norm", "ln_2": "ffn_connection.norm"}
_MAPS = {"attn.c_proj": "self_attn.out_proj", "mlp.c_fc": "fc1", "mlp.c_proj": "fc2"}
_JOINED = "attn.c_attn"  # queries, keys and values


class GPT2Settings(msgspec.Struct, kw_only=True):
    """What config.json says of the model; the defaults are those of transformers."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False


def read(folder: Folder) -> Checkpoint:
    """The checkpoint of a GPT-2 folder. See `LanguageModelReader`."""
    config = read_settings(folder, GPT2Settings)
    usual = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
    refuse_settings(config, usual, folder)
    return language_model_of(
        folder,
        dict(_renamed(folder.tensors())),
        vocabulary=config.vocab_size,
        decoder_embed_dim=config.n_embd,
        decoder_ffn_embed_dim=config.n_inner or 4 * config.n_embd,
        decoder_attention_heads=config.n_head,
        decoder_layers=config.n_layer,
        decoder_learned_pos=True,
        decoder_connection="prenorm+ln",
        activation_fn=ACTIVATIONS[config.activation_function],
        dropout=config.resid_pdrop,
        attention_dropout=config.attn_pdrop,
        max_target_positions=config.n_positions,
        norm_eps=config.layer_norm_epsilon,
        share_decoder_input_output_embed=config.tie_word_embeddings,
    )


def _renamed(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The weights under our names. GPT-2's linear maps have transposed weights."""
    for stored, tensor in weights.items():
        name = stored.removeprefix("transformer.")
        if _MASK.fullmatch(name):
            continue
        match = _PART.fullmatch(name)
        if match is None:
            yield _NAMES.get(name, name), tensor
            continue
        number, part, kind = match.groups()
        layer = f"decoder.layers.{number}"
        if part in _NORMS:
            yield f"{layer}.{_NORMS[part]}.{kind}", tensor
            continue
        tensor = tensor.t() if kind == "weight" else tensor
        if part == _JOINED:
            for letter, piece in zip("qkv", tensor.chunk(3), strict=False):
                yield f"{layer}.self_attn.{letter}_proj.{kind}", piece.contiguous()
        else:
            yield f"{layer}.{_MAPS.get(part, part)}.{kind}", tensor.contiguous()
