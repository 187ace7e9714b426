"""Provides beam search and sampling for any decoder that works token by token."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rskip.generation.options import SearchOptions

if TYPE_CHECKING:
    from rskip.generation.decoder import DecoderState, StepDecoder
    from rskip.generation.ensemble import EnsembleDecoder
    from rskip.generation.hypothesis import Hypothesis
    from rskip.generation.search import beam_search
    from rskip.generation.special_tokens import SpecialTokens

__all__ = [
    "DecoderState", "EnsembleDecoder", "Hypothesis", "SearchOptions", "SpecialTokens", "StepDecoder", "beam_search",
]  # fmt: skip

_HOMES = {
    "EnsembleDecoder": "ensemble", "Hypothesis": "hypothesis", "SpecialTokens": "special_tokens",
    "beam_search": "search",
}  # fmt: skip


def __getattr__(name: str) -> object:
    # Imported on first use: SearchOptions, which defines command-line flags, doesn't need torch, which loads for a
    # second.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'decoder')}"), name)
