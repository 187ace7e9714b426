"""Reads a system's translations of a test set from files, and writes its scores to a file.

`rskip evaluate` scores them with `rskip.translation.metrics`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rskip.corpora.binarised import MmapSentences
from rskip.corpora.prepared import find_pairs
from rskip.corpora.record import RECORD_FILE
from rskip.text import TextPipeline
from rskip.translation.compound_split import LANGUAGE
from rskip.translation.generated import read_generated, read_hypotheses
from rskip.translation.metric_table import METRICS
from rskip.translation.metrics import Comparison, Score, tokenised_bleu


class System(NamedTuple):
    """The translations of one system: raw, and as words joined by spaces if these are known.

    moses_words: whether these words are tokens of Moses' tokeniser.
    """

    hypotheses: list[str]
    words: list[str] | None = None
    reference_words: list[str] | None = None
    moses_words: bool = False


def reference_file(data: Path, split: str) -> Path:
    """The raw references of a split in a folder that `rskip prepare` made."""
    return data / "reference" / f"{split}.{TextPipeline.load(data / 'text').target_language}"


def has_only_tokens(data: Path) -> bool:
    """Whether fairseq-preprocess made the folder, which then has neither a text pipeline nor raw references."""
    return any(data.glob("dict.*.txt")) and not any((data / name).exists() for name in (RECORD_FILE, "text"))


def score_tokens(path: Path, *, data: Path, split: str) -> tuple[dict[str, Score], int]:
    """The tokenised BLEU of fairseq-generate's output for such a folder, and the number of sentences."""
    found, words = find_pairs(data), read_generated(path).words()
    if words.references is None:
        raise ValueError(f"{path} has no T lines, the references: expected the output of fairseq-generate")
    if split not in found.splits:
        raise ValueError(f"{data} has no split {split}: give one of {', '.join(found.splits)} as --split")
    source, target = found.languages
    sentences = len(MmapSentences(found.splits[split][0] / f"{split}.{source}-{target}.{target}"))
    if len(words.hypotheses) != sentences:
        problem = f"{path} has {len(words.hypotheses)} translations but {split} of {data} has {sentences} sentences"
        raise ValueError(f"{problem}: give the --split that was translated")
    return {"tokenised_bleu": tokenised_bleu(words.hypotheses, words.references)}, sentences


def check_german(data: Path) -> None:
    """:raises ValueError: the folder's target language is not German."""
    if (language := TextPipeline.load(data / "text").target_language) != LANGUAGE:
        raise ValueError(
            "--compound-split is for translations into German, as in papers on WMT'14 English-German, "
            f"but {data} translates into {language!r}: leave it out"
        )


def read_system(path: Path, *, data: Path | None) -> System:
    """Reads raw translations, or decodes fairseq-generate's output with the text pipeline of `data`."""
    if data is None:
        return System(read_hypotheses(path))
    pipeline = TextPipeline.load(data / "text")
    generated = read_generated(path)
    words = generated.words()
    return System(
        hypotheses=generated.decoded(pipeline),
        words=words.hypotheses,
        reference_words=words.references,
        moses_words=generated.references is not None and pipeline.config.tokeniser == "moses",
    )


def _in_json(scores: dict[str, Score], sentences: int) -> dict[str, object]:
    """Values and signatures under the names of --json; null for scores that were not computed."""
    values: dict[str, object] = {"sentences": sentences}
    for metric in METRICS:
        found = scores.get(metric.name)
        values[metric.name] = found and found.value
        if metric.signature:
            values[metric.signature] = found and found.signature
    return values


def to_json(scores: dict[str, dict[str, Score]], comparisons: list[Comparison], *, sentences: int) -> str:
    """Returns `{"system": …, "baseline": …, "comparisons": […]}`. The last two need a baseline."""
    values: dict[str, object] = {role: _in_json(found, sentences) for role, found in scores.items()}
    if comparisons:
        values["comparisons"] = [asdict(each) for each in comparisons]
    return json.dumps(values, indent=2)
