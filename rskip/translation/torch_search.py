"""Searches for translations of a batch with a model in PyTorch. B segments, S source length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from rskip.generation import Hypothesis, SearchOptions, SpecialTokens, beam_search
from rskip.translation.ensemble import Ensemble
from rskip.translation.search import TorchModel, padded


def search(
    model: TorchModel,
    sources: Sequence[Sequence[int]],
    options: SearchOptions,
    *,
    prefixes: Sequence[Sequence[int]] | None,
    special: SpecialTokens,
    each_step: Callable[[int], None] | None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each source.

    :param prefixes: forced first tokens of each translation, padded at the end.
    :param each_step: see `beam_search`.
    """
    if isinstance(model, Ensemble) and options.temperature != 1:
        model, options = model.tempered(options.temperature), replace(options, temperature=1.0)
    device, lengths = model.device, [len(source) for source in sources]
    source = torch.tensor(padded(sources))  # (B, S)
    with torch.inference_mode():
        return beam_search(
            model,
            model.encode(source.to(device, non_blocking=True), padded=min(lengths) < max(lengths)),
            options,
            source_lengths=torch.tensor(lengths).to(device, non_blocking=True),
            prefix=None if prefixes is None else torch.tensor(prefixes),
            special=special,
            each_step=each_step,
        )
