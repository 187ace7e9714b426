"""Decodes with several models as one. B sentences, K beams, S source length, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rskip.generation.decoder import DecoderState, StepDecoder


@dataclass
class EnsembleState:
    """The states of all models, and the mean (B, K, S) of their attention if it was requested."""

    states: list[DecoderState]
    attention: Tensor | None = None


class EnsembleDecoder:
    """A `StepDecoder` with the mean of several models' probabilities. Its memory is a sequence of one memory per model.

    The models may have any sizes and connections, but they must have the same target dictionary. For attention they
    must have the same source tokens too. `temperature` divides each model's logits before the mean, as in fairseq. It
    replaces `SearchOptions.temperature`, which would divide the logarithm of the mean.

    :raises ValueError: a step's target vocabularies have different sizes.
    """

    def __init__(self, decoders: Sequence[StepDecoder], *, temperature: float = 1.0) -> None:
        self.decoders = list(decoders)
        self.temperature = temperature

    @property
    def max_positions(self) -> int | None:
        """The smallest limit of all models; None without limits."""
        bounds = [decoder.max_positions for decoder in self.decoders]
        return min((each for each in bounds if each is not None), default=None)

    def start(self, memory: Sequence[Any], *, attention: bool = False) -> EnsembleState:
        """The state before the first token, from one memory per model."""
        return EnsembleState(
            [decoder.start(each, attention=attention) for decoder, each in zip(self.decoders, memory, strict=True)]
        )

    def step(self, tokens: Tensor, state: EnsembleState) -> Tensor:
        """The logarithm (B, K, V) of the mean probability of the tokens that follow `tokens` (B, K)."""
        pairs = list(zip(self.decoders, state.states, strict=True))
        logits = [decoder.step(tokens, each) for decoder, each in pairs]
        attention = [each.attention for each in state.states if each.attention is not None]
        state.attention = torch.stack(attention).mean(0) if attention else None
        return torch.stack([self._log_probabilities(each) for each in logits]).logsumexp(0) - math.log(len(logits))

    def reorder(self, state: EnsembleState, parents: Tensor, sentences: Tensor | None = None) -> None:
        """Reorders the state of every model, so that beam k continues parents[:, k]."""
        for decoder, each in zip(self.decoders, state.states, strict=True):
            decoder.reorder(each, parents, sentences)

    def _log_probabilities(self, logits: Tensor) -> Tensor:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return (logits if self.temperature == 1 else logits / self.temperature).log_softmax(-1)
