"""The encoder-decoder Transformer in plain PyTorch, each block given its connection."""

from rskip.transformer.config import TransformerConfig
from rskip.transformer.decoder import DecoderCache
from rskip.transformer.encoder import Memory
from rskip.transformer.model import Transformer

__all__ = ["DecoderCache", "Memory", "Transformer", "TransformerConfig"]
