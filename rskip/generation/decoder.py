"""What a beam search asks of a model. B sentences, K beams, S source length, V vocabulary."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class DecoderState(Protocol):
    """What a decoder keeps between steps."""

    @property
    def attention(self) -> Tensor | None:
        """The attention of the last step (B, K, S); None unless requested from `start`."""
        ...


class StepDecoder(Protocol):
    """A decoder that goes forward token by token. `rskip.transformer.Transformer` is one."""

    @property
    def max_positions(self) -> int | None:
        """The maximum length of a target in tokens, including its end; None without a limit."""
        ...

    def start(self, memory: Any, *, attention: bool = False) -> DecoderState:
        """The state before the first token, with one beam for each sentence of `memory`."""
        ...

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Logits (B, K, V) of what follows `tokens` (B, K); the state takes them in. The search writes over them."""
        ...

    def reorder(self, state: Any, parents: Tensor, sentences: Tensor | None = None) -> None:
        """Beam k continues parents[:, k].

        `parents` (B', K') names beams of the same sentence, so their number can change; `sentences` (B') names the
        sentences of the batch that stay, in their order, None all.
        """
        ...
