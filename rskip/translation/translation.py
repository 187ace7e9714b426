"""What a Translator gives back, and the forms in which it is written line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TranslatedHypothesis:
    """One translation of a sentence into T model tokens. What is None was not asked for.

    :param text: raw text.
    :param score: the log-probability over its length penalty, the end counted.
    :param tokens: (T) target tokens, without the end.
    :param token_scores: (T + 1) each token's log-probability, the end's last.
    :param alignment: (source token, target token) for each target token, counted from 0: indices into
        `Translation.source_tokens` and `tokens`. The source token is the one that got the most attention, as with
        fairseq's `--print-alignment hard`; the end is never one.
    :param attention: (T + 1, S + 1), each target token's attention over the source's tokens, both ends last. None for a
        sentence that was split.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...] | None = None
    alignment: tuple[tuple[int, int], ...] | None = None
    attention: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Translation:
    """The translations of one sentence, best first; there is at least one.

    :param source: the sentence as it was given. A blank one has one hypothesis, of no tokens, that scores 0.
    :param notes: what was done that was not plainly translating it: it was cut, split, or its translation was stopped.
    :param source_tokens: (S) the model tokens that were translated, without the end.
    """

    source: str
    hypotheses: tuple[TranslatedHypothesis, ...]
    notes: tuple[str, ...] = ()
    source_tokens: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best translation's score."""
        return self.hypotheses[0].score


class SentenceError(ValueError):
    """A sentence that can't be translated.

    :param number: which of those that were given, from 1.
    :param reason: why not.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"sentence {number}: {reason}")
        self.number = number
        self.reason = reason


LineForm = Callable[[Translation, int], str]  # takes also the number of the source line, from 1


def line_form(*, as_json: bool, scores: bool, nbest: int) -> LineForm:
    """The function that writes a translation."""
    if as_json:
        return _json_line
    if nbest > 1:
        return _nbest_lines
    return _scored_line if scores else _text_line


def _text_line(translation: Translation, number: int) -> str:
    """The best translation."""
    return f"{_on_one_line(translation.text)}\n"


def _scored_line(translation: Translation, number: int) -> str:
    """The best translation's score, a tab, the translation."""
    return f"{translation.score:.4f}\t{_on_one_line(translation.text)}\n"


def _nbest_lines(translation: Translation, number: int) -> str:
    """A line for each hypothesis, best first: the source line's number, its score, its text, with tabs between."""
    return "".join(f"{number}\t{each.score:.4f}\t{_on_one_line(each.text)}\n" for each in translation.hypotheses)


def _json_line(translation: Translation, number: int) -> str:
    """A JSON object with all that is known of the sentence."""
    hypotheses = [
        {
            "text": each.text,
            "score": each.score,
            "tokens": each.tokens,
            "token_scores": each.token_scores,
            "alignment": each.alignment,
        }
        for each in translation.hypotheses
    ]
    values = {
        "source": translation.source,
        "source_tokens": translation.source_tokens,
        "hypotheses": hypotheses,
        "notes": translation.notes,
    }
    return json.dumps(values, ensure_ascii=False) + "\n"


def _on_one_line(text: str) -> str:
    # a model with byte fallback can write a line feed
    return text.replace("\n", " ")
