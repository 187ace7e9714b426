"""Declares the decoder interface of a beam search. B sentences, K beams, S source length, V vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class DecoderState(Protocol):
    """The state of a decoder between steps."""

    @property
    def attention(self) -> Tensor | None:
        """The attention of the last step (B, K, S); None unless requested from `start`."""
        ...


class StepDecoder(Protocol):
    """A decoder that works token by token, such as `rskip.transformer.Transformer`."""

    @property
    def max_positions(self) -> int | None:
        """The maximum length of a target in tokens, including its end; None without a limit."""
        ...

    def start(self, memory: Any, *, attention: bool = False) -> DecoderState:
        """The state before the first token, with one beam per sentence of `memory`."""
        ...

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Adds `tokens` (B, K) to the state, and returns the next logits (B, K, V), which the search overwrites."""
        ...

    def reorder(self, state: Any, parents: Tensor, sentences: Tensor | None = None) -> None:
        """Reorders the state, so that beam k continues parents[:, k].

        `parents` (B', K') are beams of the same sentence. Their number may change. `sentences` (B') are the remaining
        sentences of the batch, in order; None: all.
        """
        ...
