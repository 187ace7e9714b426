"""Transformers in plain PyTorch, encoder-decoder and decoder-only, with a residual connection of your choice."""

from rskip.transformer.config import LanguageModelConfig, TransformerConfig
from rskip.transformer.encoder import Memory
from rskip.transformer.language_model import LanguageModel
from rskip.transformer.model import Transformer
from rskip.transformer.state import IncrementalState

__all__ = ["IncrementalState", "LanguageModel", "LanguageModelConfig", "Memory", "Transformer", "TransformerConfig"]
