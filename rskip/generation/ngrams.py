"""Which tokens would say an n-gram a second time. R rows, T tokens."""

from __future__ import annotations

from torch import Tensor


def repeated_ngram_tokens(prefixes: Tensor, size: int, *, filler: int) -> Tensor:
    """The tokens (R, N) that would complete an n-gram of `size` tokens which their row already has.

    `prefixes` (R, T): the tokens so far. A row's tokens may come twice, and `filler` stands among them. Without the
    start token, that is; with it, size 1 would forbid the start's token as well.
    """
    if prefixes.size(1) < size:
        return prefixes[:, :0]
    ngrams = prefixes.unfold(1, size, 1)  # (R, T - size + 1, size)
    last = prefixes[:, prefixes.size(1) - size + 1 :]  # (R, size - 1)
    begins_as_last = (ngrams[:, :, :-1] == last[:, None]).all(2)
    return ngrams[:, :, -1].masked_fill(~begins_as_last, filler)
