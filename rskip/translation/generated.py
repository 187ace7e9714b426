"""Reads and decodes what fairseq-generate wrote, and reads what `rskip translate` wrote."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rskip.files import text_lines
from rskip.text import TextPipeline

_BYTES = re.compile(r"(<0x[0-9A-F]{2}>)+")  # byte pieces of a SentencePiece model with byte_fallback
_HYPOTHESIS = re.compile(r"H-(\d{1,18})\t(-?\d+(?:\.\d*)?(?:e[+-]?\d+)?|-?inf|nan)\t(.*)")
_SENTENCE = re.compile(r"([ST])-(\d{1,18})\t(.*)")
# of `rskip translate`
_SCORED = re.compile(r"((?P<number>[1-9]\d{,17})\t)?(?P<score>-?(\d+\.\d{4}|inf|nan))\t(?P<text>.*)")


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

    def decoded(self, pipeline: TextPipeline) -> list[str]:
        """The hypotheses as raw sentences."""
        return [pipeline.decode(tokens) for tokens in self.hypotheses]

    def words(self) -> Generated:
        """The same sentences in words, without subword marks."""
        sides = (self.hypotheses, self.references, self.sources)
        hypotheses, references, sources = (side and [join_subwords(tokens) for tokens in side] for side in sides)
        return Generated(hypotheses=hypotheses or [], references=references, sources=sources)


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 file without line ends. Only a line feed ends a line."""
    if lines := list(text_lines.read_lines(Path(path))):
        return lines
    raise ValueError(f"{path} is empty")


def read_hypotheses(path: str | os.PathLike[str]) -> list[str]:
    """Raw translations, one per line, or the best ones from `rskip translate` in any of its forms."""
    lines = read_lines(path)
    if all(line.startswith('{"source": ') for line in lines):
        return [_best_of_json(line, f"{path}: line {number}") for number, line in enumerate(lines, start=1)]
    scored = [match for line in lines if (match := _SCORED.fullmatch(line))]
    if len(scored) < len(lines):
        return lines
    if any(match["number"] is None for match in scored):
        return [match["text"] for match in scored]
    # of a line of several sentences the first translation may have a lower score than the second
    first = {int(each["number"]) - 1: each["text"] for each in reversed(scored)}
    return _in_order(first, path)


def read_generated(path: str | os.PathLike[str]) -> Generated:
    """Reads fairseq-generate's output (`generate-test.txt`, or what it printed) in the test set's order.

    If a sentence has several hypotheses (--nbest), the one with the best score counts; among equal ones, the first.
    """
    sources: dict[int, str] = {}
    references: dict[int, str] = {}
    scored: list[tuple[int, str, str]] = []
    for line in read_lines(path):
        if match := _HYPOTHESIS.fullmatch(line):
            scored.append((int(match[1]), match[2], match[3]))
        elif match := _SENTENCE.fullmatch(line):
            number, found = int(match[2]), sources if match[1] == "S" else references
            if number in found:
                twice = f"{path} has {match[1]}-{number} twice"
                raise ValueError(f"{twice}: expected the output of one run of fairseq-generate")
            found[number] = match[3]
    if not scored:
        raise ValueError(f"{path} has no H lines: expected what fairseq-generate prints (without --quiet)")
    best = _best(scored)
    return Generated(
        hypotheses=_in_order(best, path),
        references=_in_order(references, path) if references else None,
        sources=_in_order(sources, path) if sources.keys() == best.keys() else None,
    )


def join_subwords(tokens: str) -> str:
    """Joins model tokens into words: undoes byte-pair encoding's `@@ `, or SentencePiece's `▁` and byte pieces."""
    if "\u2581" in tokens or _BYTES.fullmatch(tokens.replace(" ", "")):
        joined = tokens.replace(" ", "").replace("\u2581", " ").strip()
        return _BYTES.sub(_characters, joined)
    return (tokens + " ").replace("@@ ", "").rstrip()


def _best(scored: Iterable[tuple[int, str, str]]) -> dict[int, str]:
    """The text with the best score of each sentence, by the sentence's number. Of equal scores the first wins."""
    best: dict[int, tuple[float, str]] = {}
    for number, score, text in scored:
        value = -math.inf if score == "nan" else float(score)
        if number not in best or value > best[number][0]:
            best[number] = value, text
    return {number: text for number, (_, text) in best.items()}


def _best_of_json(line: str, name: str) -> str:
    try:
        return str(json.loads(line)["hypotheses"][0]["text"]).replace("\n", " ")
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{name} is not what rskip translate --format json writes") from error


def _characters(codes: re.Match[str]) -> str:
    return bytes.fromhex(re.sub("<0x|>", "", codes[0])).decode(errors="replace")


def _in_order(sentences: dict[int, str], path: str | os.PathLike[str]) -> list[str]:
    number = max(sentences) + 1
    if len(sentences) < number:
        first = next(index for index in range(number) if index not in sentences)
        raise ValueError(
            f"{path} has no translation of sentence {first} ({number - len(sentences)} of {number} missing): "
            "give the complete output, without --skip-invalid-size-inputs-valid-test"
        )
    return [sentences[index] for index in range(number)]
