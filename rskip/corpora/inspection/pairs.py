"""Single sentence pairs of a split: the most lopsided ones, random ones, and their text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rskip.corpora.inspection.mmap_sentences import Integers, MmapSentences
from rskip.text.dictionary import Dictionary

Decode = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class PairText:
    """A pair as people read it.

    number: of its line in the split, counted from 1, shard after shard.
    lengths: tokens of source and target, without the end mark.
    """

    number: int
    source: str
    target: str
    lengths: tuple[int, int]


class LopsidedPairs:
    """Keeps the pairs whose longer side has the most times the tokens of the shorter; of equal ones the first.

    An empty side counts as one token.

    :param keep: how many.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._rows: Integers = np.empty(0, dtype=np.int64)
        self._factors = np.empty(0)

    def add(self, first: int, source: Integers, target: Integers) -> None:
        """Looks at the pairs of these lengths, of which the first is row `first`."""
        if not self._keep:
            return
        factors = np.maximum(source, target) / np.maximum(np.minimum(source, target), 1)
        rows = np.arange(first, first + len(factors))
        if len(self._rows) == self._keep:
            better = factors > self._factors[-1]
            factors, rows = factors[better], rows[better]
        factors, rows = np.concatenate([self._factors, factors]), np.concatenate([self._rows, rows])
        best = np.argsort(-factors, kind="stable")[: self._keep]
        self._factors, self._rows = factors[best], rows[best]

    @property
    def rows(self) -> list[int]:
        """Their rows, the most lopsided first."""
        return self._rows.tolist()


def random_rows(rows: int, *, keep: int, seed: int) -> list[int]:
    """Rows drawn without repetition, in ascending order; the same for the same seed."""
    return sorted(random.Random(seed).sample(range(rows), min(keep, rows)))


class PairReader:
    """Gives single pairs of a split as text.

    :param parts: source and target sentences of each part of the split.
    :param dictionaries: of source and target.
    :param decoders: tokens joined by spaces to what is shown, for source and target.
    """

    def __init__(
        self,
        parts: Sequence[tuple[MmapSentences, MmapSentences]],
        dictionaries: tuple[Dictionary, Dictionary],
        decoders: tuple[Decode, Decode],
    ) -> None:
        self._parts = parts
        self._dictionaries = dictionaries
        self._decoders = decoders

    def read(self, row: int) -> PairText:
        """The pair of this row, counted from 0 over all parts."""
        within = row
        for part in self._parts:
            if within < len(part[0]):
                break
            within -= len(part[0])
        indices = [sentences.sentence(within) for sentences in part]
        source, target = (
            decode(dictionary.decode(side.tolist()))
            for decode, dictionary, side in zip(self._decoders, self._dictionaries, indices, strict=True)
        )
        lengths = (_length(indices[0]), _length(indices[1]))
        return PairText(number=row + 1, source=source, target=target, lengths=lengths)


def _length(indices: Integers) -> int:
    """Tokens without the end mark."""
    return len(indices) - int(len(indices) > 0 and indices[-1] == Dictionary.eos_index)


def decoders(text: Path, languages: tuple[str, str]) -> tuple[Decode, Decode]:
    """How tokens of each language become text: by the pipeline in this folder, or as they are where it has none.

    :raises ValueError: a pipeline that can't be read.
    """
    from rskip.text.pipeline import CONFIG_FILE, TextPipeline

    if not (text / CONFIG_FILE).is_file():
        return (str, str)
    pipeline = TextPipeline.load(text)
    known = {pipeline.target_language: pipeline.decode, pipeline.source_language: pipeline.reversed().decode}
    return (known.get(languages[0], str), known.get(languages[1], str))
