"""Architectures by name, `transformer_<connection>[_<size>]`, for fairseq-train's `--arch`."""

from __future__ import annotations

from typing import NamedTuple

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


def architecture(connection: str, size: str) -> str:
    """The name of an architecture, such as `transformer_rskip_ln_tiny`; size base has no suffix.

    :param connection: a key of CONNECTIONS.
    :param size: a key of SIZES.
    """
    return f"transformer_{connection}" + ("" if size == "base" else f"_{size}")
