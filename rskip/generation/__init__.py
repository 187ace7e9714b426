"""Provides beam search and sampling for any decoder that works token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.generation.compiled_steps import find_search
    from rskip.generation.decoder import DecoderState, StepDecoder
    from rskip.generation.ensemble import EnsembleDecoder
    from rskip.generation.hypothesis import Hypothesis
    from rskip.generation.options import SearchOptions, SpecialTokens
    from rskip.generation.search import beam_search

__all__ = [
    "DecoderState", "EnsembleDecoder", "Hypothesis", "SearchOptions", "SpecialTokens", "StepDecoder", "beam_search",
    "find_search",
]  # fmt: skip

_MEMBERS = {
    "compiled_steps": ("find_search",), "decoder": ("DecoderState", "StepDecoder"),
    "ensemble": ("EnsembleDecoder",), "hypothesis": ("Hypothesis",),
    "options": ("SearchOptions", "SpecialTokens"), "search": ("beam_search",),
}  # fmt: skip
__getattr__ = imported_on_use(__name__, {name: module for module, names in _MEMBERS.items() for name in names})
