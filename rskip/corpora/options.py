"""What a user chooses when a corpus is prepared."""

from __future__ import annotations

from dataclasses import dataclass

from rskip.corpora.corpus import Corpus, GeneratedCorpus
from rskip.text.subwords import subwords_class


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Everything that changes the bytes of a prepared corpus. None stands for the corpus's own default.

    :param subwords: "bpe" or "sentencepiece".
    :param size: BPE merges, or SentencePiece units.
    :param pairs: training pairs; for generated corpora only.
    :param seed: for generated corpora only.
    """

    subwords: str = "bpe"
    size: int | None = None
    pairs: int | None = None
    seed: int | None = None

    def resolve(self, corpus: Corpus) -> dict[str, str | int]:
        """The options that `corpus` has, its defaults in place.

        :raises ValueError: an unknown kind of subword units, a number that is too small, or an option that
            the corpus doesn't have.
        """
        subwords_class(self.subwords)
        size = corpus.subword_size if self.size is None else self.size
        if size < 1:
            raise ValueError(f"the number of subword units is {size}: expected 1 or more")
        resolved: dict[str, str | int] = {"subwords": self.subwords, "size": size}
        if isinstance(corpus, GeneratedCorpus):
            resolved["pairs"] = corpus.pairs if self.pairs is None else self.pairs
            resolved["seed"] = corpus.seed if self.seed is None else self.seed
        elif self.pairs is not None or self.seed is not None:
            raise ValueError(f"--pairs and --seed are for generated corpora: {corpus.name} is published")
        return resolved
