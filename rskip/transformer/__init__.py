"""An encoder-decoder Transformer in plain PyTorch, with a residual connection of your choice."""

from rskip.transformer.config import TransformerConfig
from rskip.transformer.encoder import Memory
from rskip.transformer.model import Transformer
from rskip.transformer.state import IncrementalState

__all__ = ["IncrementalState", "Memory", "Transformer", "TransformerConfig"]
