"""Parameter names that fairseq's stock `transformer` had in its early versions, brought up to those of 0.12.2."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torch import Tensor

# Queries, keys and values were one matrix (until 2019).
_IN_PROJECTION = re.compile(r"(.*\.(?:self|encoder)_attn)\.in_proj_(weight|bias)")
# Layer norms were numbered (until 2019).
_NUMBERED_NORM = re.compile(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)")
_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
# Tables of sine and cosine, which the model computes.
_TABLE = re.compile(r"(encoder|decoder)\.embed_positions\.weights")
_PROJECTION = "decoder.output_projection.weight"


def from_old_stock(model: Mapping[str, Tensor], *, tied_output: bool) -> dict[str, Tensor]:
    """A stock `transformer`'s tensors, not copied, under the names of fairseq 0.12.2, from whatever version.

    :param tied_output: the output projection is the decoder's embedding; early versions did not save it twice.
    """
    renamed = dict(pair for name, tensor in model.items() for pair in _renamed(name, tensor))
    embedding = renamed.get("decoder.embed_tokens.weight")
    if tied_output and embedding is not None:
        renamed.setdefault(_PROJECTION, embedding)
    return renamed


def _renamed(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    if match := _IN_PROJECTION.fullmatch(name):
        for part, piece in zip("qkv", tensor.chunk(3), strict=True):
            yield f"{match[1]}.{part}_proj.{match[2]}", piece
    elif match := _NUMBERED_NORM.fullmatch(name):
        yield f"{match[1]}.{_NORMS[match[2]][int(match[3])]}.{match[4]}", tensor
    elif name == "decoder.embed_out":
        yield _PROJECTION, tensor
    elif not _TABLE.fullmatch(name):
        yield name, tensor
