"""Draws tokens from a model's distribution. B sentences, K rows of a sentence, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.generation.options import SearchOptions


def sample(log_probabilities: Tensor, options: SearchOptions, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws a token for each row, by `options.top_k` and `options.top_p`.

    It takes log-probabilities (B, K, V) and a generator on their device. It returns tokens (B, K) and their
    log-probabilities (B, K) under the original distribution, as in fairseq. Only the draw uses the truncated and
    renormalised distribution. If all tokens of a row have -inf or NaN, the result is any token with that value.

    top_p draws from the smallest set of most probable tokens whose probabilities reach p, including the one that
    crosses p (Holtzman et al. 2020, section 3.1). With both options, a token must be in both sets, which are computed
    from the original distribution.
    """
    candidates, tokens = _most_probable(log_probabilities, options)
    best = candidates.amax(-1, keepdim=True)
    nothing = ~best.isfinite()
    if nothing.device.type != "cpu" or bool(nothing.any()):
        candidates, best = candidates.masked_fill(nothing, 0), best.masked_fill(nothing, 0)
    # Only ratios matter for the draw. The best one becomes 1, so that improbable tokens don't underflow.
    weights = (candidates - best).exp()
    # as in torch.multinomial, but without its checks, which would wait for the device
    drawn = (weights / torch.empty_like(weights).exponential_(generator=generator)).argmax(-1, keepdim=True)
    if tokens is not None:
        drawn = tokens.gather(2, drawn)
    return drawn.squeeze(2), log_probabilities.gather(2, drawn).squeeze(2)


def _most_probable(log_probabilities: Tensor, options: SearchOptions) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities (B, K, N) and tokens to draw from. The tokens are None for the whole vocabulary."""
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
