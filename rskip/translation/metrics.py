"""Scores translations of a test set, and tests whether one system is better than another.

Compare sacreBLEU (Post, 2018) on raw text with other publications. Tokenised BLEU depends on the tokeniser, so compare
it only with scores on the same tokens.
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from rskip.files import text_lines
from rskip.machine.extras import extra
from rskip.translation.compound_split import GERMAN_TOKENS, OWN_TOKENS, compound_split_bleu, german_words

with extra("translation"):
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest


class Score(NamedTuple):
    """A percentage, and sacreBLEU's signature, which is None for simple counts."""

    value: float
    signature: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The paired bootstrap (Koehn, 2004) of a system against a baseline in one metric.

    p_value: the share of resampled test sets that differ by more than the real one, under the null hypothesis.
    system_interval, baseline_interval: half the width of the 95 % confidence interval around the mean.
    """

    metric: str
    system: float
    baseline: float
    p_value: float
    system_mean: float
    system_interval: float
    baseline_mean: float
    baseline_interval: float
    samples: int
    signature: str


@dataclass(frozen=True, kw_only=True)
class Generated:
    """The output of fairseq-generate, in the order of the test set.

    hypotheses: tokens of each sentence's best hypothesis (H lines), joined by spaces.
    references: tokens of the references (T lines); None if they are not in the output.
    sources: tokens of the sources (S lines); None unless all of them are in the output.
    """

    hypotheses: list[str]
    references: list[str] | None
    sources: list[str] | None = None


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenised_hypotheses: Sequence[str] | None = None,
    tokenised_references: Sequence[str] | None = None,
    compound_split: bool = False,
    compound_split_own: bool = False,
) -> dict[str, Score]:
    """Scores of raw hypotheses against raw references, line by line.

    sacrebleu: BLEU of raw text, cased, sacreBLEU's tokenisation 13a.
    chrf: chrF2 of raw text (Popovic, 2015).
    tokenised_bleu: BLEU of the given tokens, if tokens are given.
    compound_split_bleu: the score of papers on WMT'14 English-German, of raw German in Moses' tokens, as in
    tensor2tensor (rskip.translation.compound_split).
    compound_split_own_bleu: the same for the given tokens, as in fairseq.
    accuracy: share of hypotheses that equal their reference, apart from spaces at the ends.

    :param tokenised_hypotheses: words joined by spaces, for tokenised BLEU. They need `tokenised_references`.
    :param compound_split: compute `compound_split_bleu`.
    :param compound_split_own: compute `compound_split_own_bleu`. The given tokens must be those of Moses' tokeniser.
    :raises ValueError: there is nothing to score, or the numbers of lines differ.
    """
    _check_aligned(hypotheses, references)
    scores = {
        "sacrebleu": _corpus_score(BLEU(force=True), hypotheses, references),
        "chrf": _corpus_score(CHRF(), hypotheses, references),
    }
    if tokenised_hypotheses is not None and tokenised_references is not None:
        _check_aligned(tokenised_hypotheses, tokenised_references)
        tokenised = BLEU(tokenize="none", force=True)
        scores["tokenised_bleu"] = _corpus_score(tokenised, tokenised_hypotheses, tokenised_references)
    if compound_split:
        german = german_words(hypotheses), german_words(references)
        scores["compound_split_bleu"] = Score(*compound_split_bleu(*german, tokens=GERMAN_TOKENS))
    if compound_split_own:
        assert tokenised_hypotheses is not None and tokenised_references is not None
        scores["compound_split_own_bleu"] = Score(
            *compound_split_bleu(tokenised_hypotheses, tokenised_references, tokens=OWN_TOKENS)
        )
    correct = sum(h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True))
    scores["accuracy"] = Score(100 * correct / len(references))
    return scores


def paired_bootstrap(
    system: Sequence[str], baseline: Sequence[str], references: Sequence[str], *, samples: int = 1000
) -> list[Comparison]:
    """Compares the raw hypotheses of two systems with sacreBLEU's test, in BLEU and in chrF2.

    It resamples the test set `samples` times with sacreBLEU's seed (12345, or $SACREBLEU_SEED). Equal outputs get p =
    1, although sacreBLEU gives them the smallest possible p.

    :raises ValueError: there is nothing to score, the numbers of lines differ, or `samples` is below 1.
    """
    _check_aligned(system, references)
    _check_aligned(baseline, references)
    if not 1 <= samples <= 1_000_000:
        raise ValueError(f"{samples} bootstrap samples: expected at least 1, usually 1000")
    test = PairedTest(
        named_systems=[("baseline", baseline), ("system", system)],
        metrics={"BLEU": BLEU(force=True), "chrF2": CHRF()},
        references=[references],
        test_type="bs",
        n_samples=samples,
    )
    signatures, results = test()
    same = list(system) == list(baseline)
    comparisons = []
    for metric, signature in signatures.items():
        theirs, ours = (cast(Any, result) for result in results[metric])
        comparisons.append(
            Comparison(
                metric=metric,
                system=float(ours.score),
                baseline=float(theirs.score),
                p_value=1.0 if same else float(ours.p_value),
                system_mean=float(ours.mean),
                system_interval=float(ours.ci),
                baseline_mean=float(theirs.mean),
                baseline_interval=float(theirs.ci),
                samples=samples,
                signature=str(signature),
            )
        )
    return comparisons


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 file without line ends. Only a line feed ends a line.

    :raises FileNotFoundError: the file does not exist.
    :raises ValueError: the file is empty or not UTF-8. The error names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: check the path")
    if lines := list(text_lines.read_lines(path)):
        return lines
    raise ValueError(f"{path} is empty")


def read_hypotheses(path: str | os.PathLike[str]) -> list[str]:
    """Raw translations, one per line, or the best ones from `rskip translate` with --scores, --nbest or --format json.

    :raises FileNotFoundError: the file does not exist.
    :raises ValueError: the file is empty or not UTF-8, or a sentence is missing in an n-best list.
    """
    lines = read_lines(path)
    if all(line.startswith('{"source": ') for line in lines):
        return [_best_of_json(line, f"{path}: line {number}") for number, line in enumerate(lines, start=1)]
    scored = [match for line in lines if (match := _SCORED.fullmatch(line))]
    if len(scored) < len(lines):
        return lines
    if any(match["number"] is None for match in scored):
        return [match["text"] for match in scored]
    best = _Best()
    for match in scored:
        best.add(int(match["number"]) - 1, match["score"], match["text"])
    return _in_order(best.texts, path)


def read_generated(path: str | os.PathLike[str]) -> Generated:
    """Reads fairseq-generate's output (`generate-test.txt`, or what it printed) in the test set's order.

    If a sentence has several hypotheses (--nbest), the one with the best score counts; among equal ones, the first.

    :raises FileNotFoundError: the file does not exist.
    :raises ValueError: the file has another content, lacks a sentence, or has the output of several runs.
    """
    sources: dict[int, str] = {}
    references: dict[int, str] = {}
    best = _Best()
    for line in read_lines(path):
        if match := _HYPOTHESIS.fullmatch(line):
            best.add(int(match[1]), match[2], match[3])
        elif match := _SENTENCE.fullmatch(line):
            number, found = int(match[2]), sources if match[1] == "S" else references
            if number in found:
                twice = f"{path} has {match[1]}-{number} twice"
                raise ValueError(f"{twice}: expected the output of one run of fairseq-generate")
            found[number] = match[3]
    if not best.texts:
        raise ValueError(f"{path} has no H lines: expected what fairseq-generate prints (without --quiet)")
    return Generated(
        hypotheses=_in_order(best.texts, path),
        references=_in_order(references, path) if references else None,
        sources=_in_order(sources, path) if sources.keys() == best.texts.keys() else None,
    )


def says_the_same(sentence: str, expected: str) -> bool:
    """Whether two sentences share nearly all pairs of neighbouring letters.

    Ignores punctuation, spaces, case and Unicode normalisation forms.

    :param sentence: may contain unknown words, `<unk>`; then `expected` may contain further letters.
    """
    pairs, others = _letter_pairs(sentence.replace("<unk>", "")), _letter_pairs(expected)
    whole = pairs if "<unk>" in sentence else max(pairs, others, key=Counter.total)
    return (pairs & others).total() >= 0.8 * whole.total()


def _letter_pairs(sentence: str) -> Counter[str]:
    letters = [each for each in unicodedata.normalize("NFKC", sentence).casefold() if each.isalnum()]
    return Counter(map("".join, pairwise(letters)))


def join_subwords(tokens: str) -> str:
    """Joins model tokens into words: undoes byte-pair encoding's `@@ `, or SentencePiece's `▁` and byte pieces."""
    if "\u2581" in tokens or _BYTES.fullmatch(tokens.replace(" ", "")):
        joined = tokens.replace(" ", "").replace("\u2581", " ").strip()
        return _BYTES.sub(_characters, joined)
    return (tokens + " ").replace("@@ ", "").rstrip()


_BYTES = re.compile(r"(<0x[0-9A-F]{2}>)+")  # byte pieces of a SentencePiece model with byte_fallback
_HYPOTHESIS = re.compile(r"H-(\d+)\t([^\t]*)\t(.*)")
_SENTENCE = re.compile(r"([ST])-(\d+)\t(.*)")
_SCORED = re.compile(r"((?P<number>\d+)\t)?(?P<score>-?(\d+\.\d{4}|inf|nan))\t(?P<text>.*)")  # `rskip translate`


class _Best:
    """Collects the text with the best score of each sentence. Of equal scores the first wins.

    texts: the texts by number of the sentence.
    """

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self._scores: dict[int, float] = {}

    def add(self, number: int, score: str, text: str) -> None:
        value = _score(score)
        if number not in self._scores or value > self._scores[number]:
            self._scores[number], self.texts[number] = value, text


def _best_of_json(line: str, name: str) -> str:
    try:
        return str(json.loads(line)["hypotheses"][0]["text"]).replace("\n", " ")
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{name} is not what rskip translate --format json writes") from error


def _score(text: str) -> float:
    """A hypothesis's score; minus infinity if it is not a number."""
    try:
        score = float(text)
    except ValueError:
        return -math.inf
    return -math.inf if math.isnan(score) else score


def _characters(codes: re.Match[str]) -> str:
    return bytes.fromhex(re.sub("<0x|>", "", codes[0])).decode(errors="replace")


def _corpus_score(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    return Score(metric.corpus_score(hypotheses, [references]).score, str(metric.get_signature()))


def _in_order(sentences: dict[int, str], path: str | os.PathLike[str]) -> list[str]:
    number = max(sentences) + 1
    if missing := sorted(set(range(number)) - set(sentences)):
        raise ValueError(
            f"{path} has no translation of sentence {missing[0]} ({len(missing)} of {number} missing): "
            "give the complete output, without --skip-invalid-size-inputs-valid-test"
        )
    return [sentences[index] for index in range(number)]


def _check_aligned(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if not references:
        raise ValueError("no references to score against")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: expected one for each"
        )
