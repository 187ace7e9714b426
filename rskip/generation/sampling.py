"""Tokens drawn from a model's distribution. B sentences, K rows of a sentence, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.generation.options import SearchOptions


def sample(log_probabilities: Tensor, options: SearchOptions, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws a token for each row, by `options.top_k` and `options.top_p`.

    Takes log-probabilities (B, K, V) and a generator of their device. Gives tokens (B, K) and their log-probabilities
    (B, K) under the distribution as it came, as fairseq does: what it is cut to is renormalised for the draw alone.
    Where nothing is possible in a row, or there are no numbers, any token comes, with the -inf or NaN that it had.

    top_p draws from the fewest tokens, most probable first, whose probabilities together reach p; the one that crosses
    p is among them (Holtzman et al. 2020, section 3.1). With both, a token has to be among the k and among those; both
    sets are those of the distribution as it came.
    """
    candidates, tokens = _most_probable(log_probabilities, options)
    best = candidates.amax(-1, keepdim=True)
    nothing = ~best.isfinite()
    if nothing.device.type != "cpu" or bool(nothing.any()):
        candidates, best = candidates.masked_fill(nothing, 0), best.masked_fill(nothing, 0)
    # Only ratios matter to the draw: the best is 1, so that nothing possible is lost where all are improbable.
    weights = (candidates - best).exp()
    # what torch.multinomial computes, without its checks, which would wait for the device
    drawn = (weights / torch.empty_like(weights).exponential_(generator=generator)).argmax(-1, keepdim=True)
    if tokens is not None:
        drawn = tokens.gather(2, drawn)
    return drawn.squeeze(2), log_probabilities.gather(2, drawn).squeeze(2)


def _most_probable(log_probabilities: Tensor, options: SearchOptions) -> tuple[Tensor, Tensor | None]:
    """What is drawn from, (B, K, N) log-probabilities and tokens; tokens None where they are the whole vocabulary."""
    vocabulary = log_probabilities.size(-1)
    if not options.top_k and options.top_p == 1:
        return log_probabilities, None
    if options.top_k:
        candidates, tokens = log_probabilities.topk(min(options.top_k, vocabulary))
    else:
        candidates, tokens = log_probabilities.sort(descending=True)
    if options.top_p < 1:
        reached = candidates.exp().cumsum(-1) >= options.top_p
        candidates[..., 1:].masked_fill_(reached[..., :-1], float("-inf"))
    return candidates, tokens
