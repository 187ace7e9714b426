"""Makes `--no-repeat-ngram-size N` block repeated n-grams of two tokens or more.

fairseq's release lacks the compiled module for it. Its Python code compares the last tokens of the whole table, which
are padding, with the n-grams so far, so it blocks nothing. With this patch it sees the decoded tokens only. A size of 1
still has no effect.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch, wraps


def see_what_is_decoded(module: Any) -> None:
    """Wraps the blocker's method."""

    @wraps(module.NGramRepeatBlock, "_no_repeat_ngram")
    def _no_repeat_ngram(block: Any, self: Any, tokens: Any, lprobs: Any, count: int, beam_size: int, step: int) -> Any:
        return block(self, tokens[:, : step + 1], lprobs, count, beam_size, step)


NGRAM_REPEATS = Patch(
    name="ngram-repeats",
    symptom="--no-repeat-ngram-size N without effect",
    after={"fairseq.ngram_repeat_block": see_what_is_decoded},
)
