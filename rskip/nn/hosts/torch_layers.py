"""torch.nn.TransformerEncoderLayer: PyTorch must not compute an adapted layer in its fused kernel.

At inference PyTorch computes an encoder layer in one kernel (`torch.backends.mha`), and skips padding with nested
tensors. Adapted layers take PyTorch's other path, so their outputs at padding are not 0.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from torch import nn


def turn_off_fast_path(model: nn.Module, undo: ExitStack) -> None:
    """Turns the kernel off in the model's encoder layers, by the attributes that PyTorch asks before it is used."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            _set(module, "activation_relu_or_gelu", 0, undo)
        elif isinstance(module, nn.TransformerEncoder):
            _set(module, "use_nested_tensor", False, undo)


def _set(module: nn.Module, name: str, value: Any, undo: ExitStack) -> None:
    undo.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, value)
