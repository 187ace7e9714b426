"""Measures a language model's loss on a text: every token is predicted once, in blocks of the context's length.

As in fairseq-eval-lm with `--sample-break-mode none`, the input of a block begins with the token before it, which for
the first block is `</s>`. B batch, T positions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.connections.norms import at_least_float32
from rskip.tasks.training import OutputsNotFinite

TOKENS_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True)
class TextScore:
    """The probability of a text: its loss is the negative log-probability.

    :param nats: the sum of the losses of all tokens.
    :param tokens: number of predicted tokens.
    :param characters: number of characters that the tokens encode. Subwords drop repeated spaces.
    """

    nats: float
    tokens: int
    characters: int

    @property
    def nats_per_token(self) -> float:
        """The mean loss."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """The exponential of the mean loss."""
        return math.exp(min(self.nats_per_token, 700.0))

    @property
    def bits_per_character(self) -> float:
        """Comparable between models with different tokens."""
        return self.nats / math.log(2) / self.characters


def token_losses(model: nn.Module, tokens: Tensor, *, context: int, start: int, precision: str = "float32") -> Tensor:
    """The loss of each token (N), in nats, in float64 on the CPU.

    :param tokens: the text. Shape: (N,).
    :param context: number of tokens that the model reads at once.
    :param start: the token before the text.
    :raises OutputsNotFinite: an output is infinite or NaN.
    """
    device = next(model.parameters()).device
    losses = []
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for inputs, targets in _blocks(tokens, context=context, start=start):
                with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                    logits = model(inputs.to(device))
                logits = at_least_float32(logits).flatten(0, 1)
                losses.append(F.cross_entropy(logits, targets.to(device).flatten(), reduction="none").cpu())
    finally:
        model.train(was_training)
    found = torch.cat(losses).double()
    if not bool(found.isfinite().all()):
        raise OutputsNotFinite
    return found


def _blocks(tokens: Tensor, *, context: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets (B, T): batches of whole blocks, then the shorter rest."""
    inputs = torch.cat([tokens.new_tensor([start]), tokens[:-1]])
    whole = len(tokens) // context * context
    rows = max(1, TOKENS_AT_ONCE // context)
    pairs = [each[:whole].view(-1, context).split(rows) for each in (inputs, tokens)] if whole else [(), ()]
    yield from zip(*pairs, strict=True)
    if whole < len(tokens):
        yield inputs[None, whole:], tokens[None, whole:]
