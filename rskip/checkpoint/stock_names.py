"""Names of parameters in fairseq's own `transformer`, of version 0.12.2, and here. The module does not import torch.

They are the same except those of layer norms in residual blocks, which are in connections here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

Array = TypeVar("Array")

POSTNORM, PRENORM = "1xskip+ln", "prenorm+ln"
# fairseq's name of a block's layer norm, and the connection that contains it here.
NORMS = {
    "self_attn_layer_norm": "self_attn_connection.norm",
    "encoder_attn_layer_norm": "encoder_attn_connection.norm",
    "final_layer_norm": "ffn_connection.norm",
}
LAYER = re.compile(r"((?:encoder|decoder)\.layers\.\d+)\.(.+)\.(weight|bias)")
# fairseq 0.12.2's encoder layers hold copies of their own weights for a fused kernel; the other buffers mark
# versions and devices. Neither is part of the model.
_NOT_THE_MODEL = re.compile(
    r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
    r"|(encoder|decoder)\.(version|embed_positions\._float_tensor)"
)


def stock_connection(*, normalize_before: bool) -> str:
    """The connection in the blocks of fairseq's own `transformer`: pre-norm or post-norm."""
    return PRENORM if normalize_before else POSTNORM


def from_stock(model: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors of fairseq's own `transformer` under our names, with `stock_connection`. They are not copied."""
    return {_our_name(name): tensor for name, tensor in model.items() if not _NOT_THE_MODEL.fullmatch(name)}


def _our_name(name: str) -> str:
    match = LAYER.fullmatch(name)
    if match and match[2] in NORMS:
        return f"{match[1]}.{NORMS[match[2]]}.{match[3]}"
    return name
