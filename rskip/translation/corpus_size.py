"""Measures the size of a prepared corpus in fairseq-train: sentences, tokens, vocabulary, batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from rskip.corpora.binarised import MmapSentences
from rskip.corpora.prepared import PreparedPairs
from rskip.extras import extra
from rskip.text.dictionary import Dictionary

with extra("translation"):
    import numpy as np
    from numpy.typing import NDArray

MULTIPLE = 8  # fairseq-train's --required-batch-size-multiple
_FEW = 500_000  # up to this many pairs, batches are counted; for more pairs they are estimated
_FILLED = 0.93  # estimated share of a batch that is not padding, in large corpora


@dataclass(frozen=True, kw_only=True)
class CorpusSize:
    """The size of a training set. The number of tokens includes the end symbol of each sentence.

    :param source: tokens of each sentence of the source language.
    :param target: tokens of its translation.
    :param vocabulary: number of dictionary entries; if there are two dictionaries, their sum.
    :param joined: whether both languages have one dictionary.
    """

    source: NDArray[np.int32] = field(repr=False)
    target: NDArray[np.int32] = field(repr=False)
    vocabulary: int
    joined: bool

    @property
    def pairs(self) -> int:
        """Sentence pairs."""
        return len(self.source)

    @property
    def tokens(self) -> int:
        """Tokens of the longer side of each pair, as fairseq counts a batch, without padding."""
        return int(np.maximum(self.source, self.target).sum(dtype=np.int64))

    def batches(self, max_tokens: int) -> int:
        """Batches per epoch of fairseq-train with this `--max-tokens` on one GPU or CPU; estimated above _FEW pairs."""
        if self.pairs > _FEW:
            return -(-self.tokens // int(_FILLED * max_tokens))
        order = np.lexsort((self.target, self.source))  # as fairseq sorts: similar lengths share a batch
        longest = np.maximum(self.source, self.target)[order]
        return count_batches(longest[longest <= max_tokens].tolist(), max_tokens)


def count_batches(lengths: list[int], max_tokens: int) -> int:
    """The number of batches that fairseq makes of sentences in this order.

    A batch holds as many sentences as fit: a multiple of 8, or fewer than 8.

    :param lengths: tokens of each pair's longer side, at most `max_tokens` each.
    """
    batches, begin, end = 0, 0, 0  # sentences begin to end form a batch; those from end on may join it
    longest = longest_after = 0
    for position, length in enumerate(lengths):
        longest_after = max(longest_after, length)
        sentences = position + 1 - begin
        overflow = sentences * max(longest, longest_after) > max_tokens
        if overflow:
            if longest_after * (position + 1 - end) > max_tokens:  # the sentences from end on exceed a batch too
                batches, end, longest_after = batches + 1, position, length
            batches, begin, longest = batches + 1, end, 0
        if overflow or sentences < MULTIPLE or sentences % MULTIPLE == 0:
            end, longest, longest_after = position + 1, max(longest, longest_after), 0
    return batches + (begin < end) + (end < len(lengths))


def measure(data: PreparedPairs) -> CorpusSize:
    """The size of the training set in a data folder."""
    sides = []
    for language in (data.source, data.target):
        prefix = f"train.{data.source}-{data.target}.{language}"
        sides.append(np.concatenate([MmapSentences(folder / prefix).sizes for folder in data.splits["train"]]))
    files = [data.path / f"dict.{language}.txt" for language in (data.source, data.target)]
    joined = files[0].read_bytes() == files[1].read_bytes()
    vocabulary = sum(len(Dictionary.load(file)) for file in files[: 1 if joined else 2])
    return CorpusSize(source=sides[0], target=sides[1], vocabulary=vocabulary, joined=joined)
