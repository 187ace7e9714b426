"""What fairseq-generate printed, as raw sentences beside their sources and references."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rskip.text import TextPipeline
from rskip.translation.scoring import Score, join_subwords, read_generated, read_lines, score

COMPOUND_SPLIT = ("wmt14-en-de",)  # corpora for which papers report BLEU with compounds split


@dataclass(frozen=True, kw_only=True)
class Translations:
    """A translated split in its order: raw sentences, and for tokenised BLEU words joined by spaces.

    compound_split: whether compound-split BLEU is among its scores (rskip.translation.compound_split).
    """

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    hypothesis_words: list[str]
    reference_words: list[str] | None
    compound_split: bool = False

    def first(self, count: int) -> Translations:
        """The first `count` sentences."""
        return Translations(
            sources=self.sources[:count],
            references=self.references[:count],
            hypotheses=self.hypotheses[:count],
            hypothesis_words=self.hypothesis_words[:count],
            reference_words=self.reference_words and self.reference_words[:count],
            compound_split=self.compound_split,
        )

    def score(self) -> dict[str, Score]:
        """Scores of the hypotheses; ValueError where their number isn't the references'."""
        return score(
            self.hypotheses,
            self.references,
            tokenised_hypotheses=self.hypothesis_words,
            tokenised_references=self.reference_words,
            compound_split=self.compound_split,
        )


def read_translations(generated: Path, *, data: Path, split: str) -> Translations:
    """Reads fairseq-generate's output and the raw sentences of the data folder.

    Raises ValueError or FileNotFoundError where a sentence or a file is missing.
    """
    corpus = json.loads((data / "corpus.json").read_text(encoding="utf-8")).get("corpus")
    pipeline = TextPipeline.load(data / "text")
    output = read_generated(generated)
    sources, references = (
        read_lines(data / "reference" / f"{split}.{language}")
        for language in (pipeline.source_language, pipeline.target_language)
    )
    return Translations(
        sources=sources,
        references=references,
        hypotheses=[pipeline.decode(tokens) for tokens in output.hypotheses],
        hypothesis_words=[join_subwords(tokens) for tokens in output.hypotheses],
        reference_words=output.references and [join_subwords(tokens) for tokens in output.references],
        compound_split=corpus in COMPOUND_SPLIT,
    )
