"""Searches for the captions of a batch of features."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.captioning.model import CaptioningTransformer
from rskip.cpu import CpuTransformer
from rskip.generation import Hypothesis, SearchOptions, SpecialTokens, find_search
from rskip.text import Dictionary

_WORDS = SpecialTokens.of(Dictionary)


def search_captions(
    model: CaptioningTransformer | CpuTransformer,
    features: Tensor,
    padding: Tensor,
    grids: Tensor | None,
    options: SearchOptions,
    special: SpecialTokens = _WORDS,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each image, the best first, on the device of the model.

    :param features, padding, grids: the result of `batch_features`.
    :param special: special tokens; by default those of `rskip.text.Dictionary`.
    """
    if not len(padding):
        return []
    device = model.device
    padding = padding.to(device)
    with torch.no_grad():
        memory = model.encode(features.to(device), padding, None if grids is None else grids.to(device))
    search = find_search(device)
    return search(model, memory, options, source_lengths=(~padding).sum(1), special=special)
