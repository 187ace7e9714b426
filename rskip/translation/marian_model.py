"""Writes a Transformer as a folder for transformers' MarianMTModel, without using transformers.

    config.json, generation_config.json   settings of the model and of its search
    model.safetensors                     the weights
    vocab.json, target_vocab.json         the tokens and indices of the dictionaries (the second file if they differ)
    tokenizer_config.json                 the languages
    source.spm, target.spm                for MarianTokenizer, if it supports all steps of the text pipeline
    text                                  the text pipeline, which rskip reads

Tokens have the same indices as in rskip: padding is 1 and the end is 2. The weights include the positions, because
MarianMTModel's own sines and cosines have other frequencies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rskip.checkpoint.files import save_tensors
from rskip.checkpoint.stock import fold_connections, to_stock
from rskip.checkpoint.stock_names import POSTNORM
from rskip.settings.errors import SettingError
from rskip.text import Dictionary, TextPipeline, Tokenizer
from rskip.transformer import Transformer, TransformerConfig

# names of transformers
_ACTIVATIONS = {
    **{name: name for name in ("relu", "gelu", "tanh", "linear", "swish")},
    **dict.fromkeys(("gelu_accurate", "gelu_fast"), "gelu_new"),
}
_STACK = ("layers", "attention_heads", "layerdrop")
_ADVICE = "translate with `rskip translate`, or give a model with 1xskip+ln, λxskip+ln, deepnorm or askip+ln"


@torch.no_grad()
def write_marian(model: Transformer, folder: Path, tokenizer: Tokenizer, *, dtype: torch.dtype = torch.float32) -> bool:
    """Writes the folder's files except the model card.

    :param dtype: number format of the weights.
    :returns: whether MarianTokenizer supports all steps of the text pipeline. Then its files are written.
    """
    _check(model.config)
    folded = fold_connections(model)
    config = folded.config
    if {config.encoder_connection, config.decoder_connection} != {POSTNORM}:
        problem = f"{model.connection} is pre-norm, but MarianMTModel has only post-norm blocks, LN(x + f)"
        raise SettingError("", problem, advice=_ADVICE)
    shared = config.share_all_embeddings
    positions = max(config.max_source_positions, config.max_target_positions)
    weights = {name: tensor.to(dtype).contiguous() for name, tensor in _weights(folded, positions).items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / "model.safetensors", weights, {"format": "pt"})
    _write(folder / "config.json", _settings(config, positions, dtype))
    _write(folder / "generation_config.json", _generation(config, positions))
    _write(folder / "vocab.json", _vocabulary(tokenizer.source))
    if not shared:
        _write(folder / "target_vocab.json", _vocabulary(tokenizer.target))
    models = _sentencepiece(tokenizer)
    if models is not None:
        for name, content in zip(("source.spm", "target.spm"), models, strict=True):
            (folder / name).write_bytes(content)
    _write(folder / "tokenizer_config.json", _tokenizer(tokenizer, positions, shared=shared))
    tokenizer.text.save(folder / "text")
    return models is not None


def _check(config: TransformerConfig) -> None:
    """Raises an error for unsupported settings apart from the connection."""
    problems = []
    if config.activation_fn not in _ACTIVATIONS:
        problems.append(f"the activation {config.activation_fn}")
    if config.layernorm_embedding:
        problems.append("normalised embeddings (layernorm_embedding)")
    if config.encoder_embed_dim != config.decoder_embed_dim:
        problems.append(f"stacks of {config.encoder_embed_dim} and {config.decoder_embed_dim} features")
    lengths = {
        length
        for length, learned in (
            (config.max_source_positions, config.encoder_learned_pos),
            (config.max_target_positions, config.decoder_learned_pos),
        )
        if learned
    }
    if lengths and lengths != {max(config.max_source_positions, config.max_target_positions)}:
        limits = f"{config.max_source_positions} and {config.max_target_positions}"
        problems.append(f"learned positions of different lengths ({limits})")
    if problems:
        raise SettingError("", f"MarianMTModel has no {problems[0]}", advice="translate with `rskip translate`")


def _weights(model: Transformer, positions: int) -> dict[str, Tensor]:
    """The folded model's weights under the names of MarianMTModel."""
    config = model.config
    stock = to_stock(model.state_dict(), connection=POSTNORM)
    weights = {f"model.{name}": tensor for name, tensor in stock.items() if ".layers." in name}
    if config.share_all_embeddings:
        weights["model.shared.weight"] = model.encoder.embed_tokens.weight
    else:
        for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            weights[f"model.{side}.embed_tokens.weight"] = stack.embed_tokens.weight
    if not config.output_is_embedding:
        weights["lm_head.weight"] = model.decoder.output_projection.weight
    bias = model.decoder.output_projection.bias
    weights["final_logits_bias"] = torch.zeros(1, config.target_vocabulary) if bias is None else bias[None]
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        weights[f"model.{side}.embed_positions.weight"] = stack.position_table(positions)
    return weights


def _settings(config: TransformerConfig, positions: int, dtype: torch.dtype) -> dict[str, Any]:
    sides = {f"{side}_{name}": getattr(config, f"{side}_{name}") for side in ("encoder", "decoder") for name in _STACK}
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "dtype": str(dtype).removeprefix("torch."),
        "is_encoder_decoder": True,
        "d_model": config.encoder_embed_dim,
        **sides,
        **{f"{side}_ffn_dim": getattr(config, f"{side}_ffn_embed_dim") for side in ("encoder", "decoder")},
        "activation_function": _ACTIVATIONS[config.activation_fn],
        **{name: getattr(config, name) for name in ("dropout", "attention_dropout", "activation_dropout")},
        "scale_embedding": not config.no_scale_embedding,
        "max_position_embeddings": positions,
        "vocab_size": config.source_vocabulary,
        "decoder_vocab_size": config.target_vocabulary,
        "share_encoder_decoder_embeddings": config.share_all_embeddings,
        "tie_word_embeddings": config.output_is_embedding,
        **_special(config),
    }


def _special(config: TransformerConfig) -> dict[str, Any]:
    return {
        "bos_token_id": Dictionary.bos_index,
        "pad_token_id": Dictionary.pad_index,
        "eos_token_id": Dictionary.eos_index,
        "forced_eos_token_id": Dictionary.eos_index,
        "decoder_start_token_id": Dictionary.bos_index if config.start == "begin" else Dictionary.eos_index,
    }


def _generation(config: TransformerConfig, positions: int) -> dict[str, Any]:
    """The settings of generation: a beam of 4, like `rskip translate`, and no padding in translations."""
    return {**_special(config), "bad_words_ids": [[Dictionary.pad_index]], "num_beams": 4, "max_length": positions}


def _vocabulary(dictionary: Dictionary) -> dict[str, int]:
    """The index of each token. Of a repeated token the last index counts, except for special tokens."""
    indices = {token: index for index, token in enumerate(dictionary.tokens)}
    return {**indices, **{token: index for index, token in enumerate(dictionary.tokens[: dictionary.unk_index + 1])}}


def _sentencepiece(tokenizer: Tokenizer) -> tuple[bytes, bytes] | None:
    """The SentencePiece models of source and target; None: MarianTokenizer lacks steps of the text pipeline."""
    text = tokenizer.text
    if not isinstance(text, TextPipeline) or text.config.lowercase or text.config.normalise_punctuation:
        return None
    if text.config.tokeniser == "moses" or text.config.subwords == "bpe" or text.config.added_tokens:
        return None
    files = text.files()
    models = [files[name] for name in sorted(files)]  # source.spm and target.spm, or one for both
    return models[0], models[-1]


def _tokenizer(tokenizer: Tokenizer, positions: int, *, shared: bool) -> dict[str, Any]:
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": tokenizer.source_language,
        "target_lang": tokenizer.target_language,
        "separate_vocabs": not shared,
        "model_max_length": positions,
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
