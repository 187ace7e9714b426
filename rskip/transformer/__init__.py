"""Transformers in plain PyTorch, encoder-decoder and decoder-only, with a residual connection of your choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.transformer.config import LanguageModelConfig, TransformerConfig
    from rskip.transformer.encoder import Memory
    from rskip.transformer.language_model import LanguageModel
    from rskip.transformer.model import Transformer
    from rskip.transformer.state import IncrementalState

__all__ = ["IncrementalState", "LanguageModel", "LanguageModelConfig", "Memory", "Transformer", "TransformerConfig"]

_MEMBERS = {
    "config": ("LanguageModelConfig", "TransformerConfig"), "encoder": ("Memory",),
    "language_model": ("LanguageModel",), "model": ("Transformer",), "state": ("IncrementalState",),
}  # fmt: skip
__getattr__ = imported_on_use(__name__, {name: module for module, names in _MEMBERS.items() for name in names})
