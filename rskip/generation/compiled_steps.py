"""The compiled search over decoders of PyTorch. B sentences, K beams, S source length, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rskip.cpu.library import WORK_TO_SHARE, find_library
from rskip.cpu.state import CpuState
from rskip.cpu.structures import TYPES, kind_of
from rskip.cpu.threads import threads
from rskip.generation.compiled import CompiledSearch, EachStep
from rskip.generation.decoder import StepDecoder
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions, SpecialTokens
from rskip.generation.search import beam_search

_DEFAULTS, _USUAL_TOKENS = SearchOptions(), SpecialTokens()


def find_search(device: torch.device) -> Callable[..., list[list[Hypothesis]]]:
    """The search for decoders on this device: on a CPU `compiled_beam_search` if the kernels are compiled, otherwise
    `beam_search`."""
    return compiled_beam_search if device.type == "cpu" and find_library().library is not None else beam_search


def compiled_beam_search(
    decoder: StepDecoder,
    memory: Any,
    options: SearchOptions = _DEFAULTS,
    *,
    source_lengths: Tensor,
    prefix: Tensor | None = None,
    special: SpecialTokens = _USUAL_TOKENS,
    each_step: EachStep = None,
) -> list[list[Hypothesis]]:
    """As `beam_search`, for a decoder on a CPU with the compiled kernels. If they compute all of its step, C runs the
    whole loop. Samples of a sentence don't depend on the other sentences of the batch."""
    if not len(source_lengths):
        return []
    library, with_attention = find_library().library, options.attention
    assert library is not None
    limits = [options.max_length(length, decoder.max_positions) for length in source_lengths.tolist()]
    tokens = torch.full((len(limits), 1), special.end if special.start is None else special.start)
    with torch.inference_mode():
        state: Any = decoder.start(memory, attention=with_attention)
        decoding = state.decoding(options.beam) if isinstance(state, CpuState) else None
        if decoding is None:
            if each_step is not None:
                each_step(1)
            logits, attention = _step(decoder, tokens, state, with_attention)
            words, source = logits.size(-1), 0 if attention is None else attention.size(-1)
        else:
            words, source = decoding.step.words, decoding.source
        with CompiledSearch(
            library, options, limits=limits, prefixes=None if prefix is None else prefix.tolist(), special=special,
            words=words, source=source,
        ) as search:  # fmt: skip
            if decoding is not None:
                search.run(decoding, each_step)
                return search.hypotheses(_tensor)
            step = 1
            while not _finished(search, logits, attention, (*tokens.shape, words), (*tokens.shape, source)):
                step += 1
                if each_step is not None:
                    each_step(step)
                last, parents, rows = search.beams()
                tokens = torch.tensor(last)
                decoder.reorder(state, torch.tensor(parents), None if rows is None else torch.tensor(rows))
                logits, attention = _step(decoder, tokens, state, with_attention)
            return search.hypotheses(_tensor)


def _tensor(array: np.ndarray) -> Tensor:
    """The array as a tensor that callers may change in place, as fairseq's programs do."""
    with torch.inference_mode(False):
        return torch.from_numpy(array)


def _step(decoder: StepDecoder, tokens: Tensor, state: Any, with_attention: bool) -> tuple[Tensor, Tensor | None]:
    """Logits and attention."""
    logits = decoder.step(tokens, state)
    if kind_of(logits) not in TYPES:
        logits = logits.float()
    return logits, state.attention.float() if with_attention else None


def _finished(
    search: CompiledSearch, logits: Tensor, attention: Tensor | None, shape: tuple[int, ...], seen: tuple[int, ...]
) -> bool:
    logits = _checked("logits", logits, shape)
    if attention is not None:
        attention = _checked("attention", attention, seen)
    return search.step(
        logits.data_ptr(), TYPES[kind_of(logits)], None if attention is None else attention.data_ptr(),
        threads=threads() if logits.numel() >= WORK_TO_SHARE else 1,
    )  # fmt: skip


def _checked(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tensor.shape != shape or not tensor.is_cpu:
        given = f"{tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"the decoder's {name} are {given}: expected {shape} on the CPU")
    return tensor.contiguous()
