"""Switches off the fast path of fairseq's encoder layer, which was written for torch 1.12.

It crashes on current PyTorch. In evaluation after loading a checkpoint it silently skips an overridden
`residual_connection`. Its copies of the layer's weights are parameters that never get a gradient, so
DistributedDataParallel fails with default settings. This patch also freezes the copies. They stay in the state dict,
because checkpoints of 0.12.2 contain them, and loading restores them.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch, wraps

COPIED = ("in_proj", "out_proj", "fc1", "fc2")
COPIES = tuple(f"{name}_{kind}" for name in COPIED for kind in ("weight", "bias"))


def switch_off_fast_path(module: Any) -> None:
    """Wraps the constructor of TransformerEncoderLayerBase."""
    layer_class = module.TransformerEncoderLayerBase

    @wraps(layer_class, "__init__")
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.can_use_fastpath = False
        for name in COPIES:
            getattr(self, name).requires_grad_(False)


ENCODER_FAST_PATH = Patch(
    name="encoder-fast-path",
    symptom="fairseq's own transformer: `Mask Type should be defined` in generate; default DDP misses gradients",
    after={"fairseq.modules.transformer_layer": switch_off_fast_path},
)
