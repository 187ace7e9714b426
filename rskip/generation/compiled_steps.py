"""The compiled search over decoders of PyTorch. B sentences, K beams, S source length, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rskip.cpu import CpuTransformer
from rskip.cpu.library import WORK_TO_SHARE, Library
from rskip.cpu.structures import TYPES, kind_of
from rskip.cpu.threads import threads
from rskip.generation.compiled import CompiledSearch, EachStep
from rskip.generation.decoder import StepDecoder
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions
from rskip.generation.special_tokens import SpecialTokens


def compiled_search(
    library: Library,
    decoder: StepDecoder,
    memory: Any,
    options: SearchOptions,
    *,
    limits: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None,
    special: SpecialTokens,
    each_step: EachStep,
) -> list[list[Hypothesis]]:
    """As `beam_search`, for a decoder on a CPU. If kernels compute all of its step, C runs the whole loop.

    :param limits: maximum number of tokens of each sentence, without its end.
    :param prefixes: forced first tokens of each sentence, padded at the end.
    """
    with CompiledSearch(library, options, limits=limits, prefixes=prefixes, special=special) as search:
        with torch.inference_mode():
            state: Any = decoder.start(memory, attention=options.attention)
            decoding = decoder.decoding(state, options.beam) if isinstance(decoder, CpuTransformer) else None
            if decoding is None:
                _by_steps(search, decoder, state, each_step)
            else:
                search.run(decoding, each_step)
        return search.hypotheses(torch.from_numpy)


def _by_steps(search: CompiledSearch, decoder: StepDecoder, state: Any, each_step: EachStep) -> None:
    """Searches over a decoder whose steps it computes itself."""
    tokens, step, finished = torch.full((len(search.limits), 1), search.start), 1, False
    while not finished:
        if each_step is not None:
            each_step(step)
        logits, attention = decoder.step(tokens, state), None
        if kind_of(logits) not in TYPES:
            logits = logits.float()
        if search.options.attention:
            assert state.attention is not None, "the decoder gives no attention"
            attention = state.attention.float()
        if step == 1:
            search.open(logits.size(-1), 0 if attention is None else attention.size(-1))
        logits = _checked("logits", logits, (*tokens.shape, search.words))
        if attention is not None:
            attention = _checked("attention", attention, (*tokens.shape, search.source))
        finished = search.search.step(
            logits.data_ptr(), TYPES[kind_of(logits)], None if attention is None else attention.data_ptr(),
            threads=threads() if logits.numel() >= WORK_TO_SHARE else 1,
        )  # fmt: skip
        if not finished:
            last, parents, rows = search.search.beams()
            tokens = torch.tensor(last)
            decoder.reorder(state, torch.tensor(parents), None if rows is None else torch.tensor(rows))
        step += 1


def _checked(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tensor.shape != shape or not tensor.is_cpu:
        given = f"{tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"the decoder's {name} are {given}: expected {shape} on the CPU")
    return tensor.contiguous()
