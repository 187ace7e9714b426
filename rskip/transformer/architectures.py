"""Architectures by name, `transformer[_lm]_<connection>[_<size>]`, for fairseq-train's `--arch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

CONNECTIONS = {
    "skip_ln": "1xskip+ln",
    "xskip": "2xskip",
    "xskip_ln": "2xskip+ln",
    "wskip_ln": "wskip+ln",
    "rskip_ln": "2rskip+ln",
    "sas": "sas",
    "prenorm": "prenorm+ln",
}


class Size(NamedTuple):
    """The size of a Transformer: features, FFN dimension, heads, and layers per stack."""

    features: int
    inner_features: int
    heads: int
    layers: int

    def parameters(self, vocabulary: int) -> int:
        """Number of weights in its linear maps and one shared embedding, without biases and norms."""
        attention, feed_forward = 4 * self.features**2, 2 * self.features * self.inner_features
        return vocabulary * self.features + self.layers * (3 * attention + 2 * feed_forward)


SIZES = {
    "base": Size(512, 2048, 8, 6),
    "tiny": Size(128, 256, 4, 4),
    "small": Size(256, 1024, 4, 3),
    "iwslt": Size(512, 1024, 4, 6),
    "2layer": Size(512, 2048, 8, 2),
    "big": Size(1024, 4096, 16, 6),
}


def architecture(connection: str, size: str, *, model: str = "transformer") -> str:
    """The name of an architecture, such as `transformer_rskip_ln_tiny`; size base has no suffix.

    :param connection: a key of CONNECTIONS.
    :param size: a key of SIZES, or of LANGUAGE_MODELS.
    :param model: "transformer", or "transformer_lm" for language models.
    """
    return f"{model}_{connection}" + ("" if size == "base" else f"_{size}")


def architecture_of(config: Mapping[str, Any]) -> str | None:
    """The architecture that builds a translation model, given its settings as flags.

    :param config: its `Checkpoint.config`.
    :returns: its own; of an imported model the one with its connection; None: there is none.
    """
    own, model = config["arch"], config["model"]
    if own in {architecture(name, size) for name in CONNECTIONS for size in SIZES}:
        return str(own)
    specs = {model.get(f"{side}_connection") for side in ("encoder", "decoder")}
    return next((architecture(name, "base") for name, spec in CONNECTIONS.items() if {spec} == specs), None)


def _language_model(size: Size, **others: Any) -> dict[str, Any]:
    sizes = dict(zip(("embed_dim", "ffn_embed_dim", "attention_heads", "layers"), size, strict=True))
    return {**{f"decoder_{name}": value for name, value in sizes.items()}, **others}


_GPT2 = {
    "activation_fn": "gelu_accurate",
    "decoder_learned_pos": True,
    "no_scale_embedding": True,
    "share_decoder_input_output_embed": True,
    "initial_std": 0.02,
}
_NANOGPT = {**_GPT2, "activation_fn": "gelu", "biases": False, "dropout": 0.0, "max_target_positions": 64}

# Fields of `LanguageModelConfig` by size. base, tiny and small have the shape of fairseq's transformer_lm, gpt2 that of
# GPT-2 with 124 million weights, and nanogpt that of nanoGPT's quick start for a cheap computer.
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    **{name: _language_model(SIZES[name]) for name in ("base", "tiny", "small")},
    "gpt2": _language_model(Size(768, 3072, 12, 12), attention_dropout=0.1, **_GPT2),
    "nanogpt": _language_model(Size(128, 512, 4, 4), **_NANOGPT),
}
