"""Which tokens would say an n-gram a second time. R rows, T tokens."""

from __future__ import annotations

from torch import Tensor


def repeated_ngram_tokens(prefixes: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The tokens that would complete an n-gram of `size` tokens which its row already has.

    `prefixes` (R, T): the tokens so far. Gives rows (N,) and tokens (N,): token i may not follow row i; a pair may come
    twice. Without the start token, that is; with it, size 1 would forbid the start's token as well.
    """
    if prefixes.size(1) < size:
        nothing = prefixes.new_empty(0)
        return nothing, nothing
    ngrams = prefixes.unfold(1, size, 1)  # (R, T - size + 1, size)
    last = prefixes[:, prefixes.size(1) - size + 1 :]  # (R, size - 1)
    begins_as_last = (ngrams[:, :, :-1] == last[:, None]).all(2)
    rows, places = begins_as_last.nonzero(as_tuple=True)
    return rows, ngrams[rows, places, -1]
