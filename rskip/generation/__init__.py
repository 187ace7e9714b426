"""Beam search and sampling over any decoder that goes token by token."""

from rskip.generation.decoder import DecoderState, StepDecoder
from rskip.generation.ensemble import EnsembleDecoder
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions
from rskip.generation.search import beam_search

__all__ = ["DecoderState", "EnsembleDecoder", "Hypothesis", "SearchOptions", "StepDecoder", "beam_search"]
