"""Represents the results of a Translator, and formats them line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rskip.text.sentences import LINE_ENDS

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True)
class TranslatedHypothesis:
    """One translation of a text into T model tokens. Values that were not requested are None.

    :param text: raw text.
    :param score: the log-probability of all tokens, including the end of each sentence, divided by the length penalty
        of their number.
    :param tokens: (T) target tokens, without the end.
    :param token_scores: (T + 1) log-probability of each token, with the end last.
    :param alignment: (source token, target token) for each target token: indices from 0 into
        `Translation.source_tokens` and `tokens`. The source token is the one with the most attention, except the end,
        as in fairseq's `--print-alignment hard`.
    :param attention: (T + 1, S + 1) NumPy array of the attention of each target token over the source's tokens, with
        both ends last. None for a text of several sentences or parts.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...] | None = None
    alignment: tuple[tuple[int, int], ...] | None = None
    attention: numpy.ndarray[Any, Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Translation:
    """One or more translations of a text, best first.

    :param source: the given text. One without a letter has one hypothesis: itself, without tokens and with score 0.
    :param notes: remarks: a sentence was cut or split or lacks a language token, or its translation was stopped.
    :param source_tokens: (S) the translated model tokens, without the end.
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
    """Raised if a sentence can't be translated.

    :param number: number of the sentence, from 1.
    :param reason: the reason.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"sentence {number}: {reason}")
        self.number = number
        self.reason = reason


_SPACES = str.maketrans(dict.fromkeys(LINE_ENDS, " "))
LineForm = Callable[[Translation, int], str]  # the second argument is the number of the source line, from 1


def line_form(*, as_json: bool, scores: bool, nbest: int) -> LineForm:
    """The function that writes a translation.

    `read_hypotheses` in rskip/translation/generated.py reads all forms back. With JSON or several hypotheses, the
    scores are written in any case.
    """
    if as_json:
        return _json_line
    if nbest > 1:
        return partial(_nbest_lines, nbest)
    return _scored_line if scores else _text_line


def _text_line(translation: Translation, number: int) -> str:
    """The best translation."""
    return f"{_on_one_line(translation.text)}\n"


def _scored_line(translation: Translation, number: int) -> str:
    """The score of the best translation, a tab and the translation."""
    return f"{translation.score:.4f}\t{_on_one_line(translation.text)}\n"


def _nbest_lines(nbest: int, translation: Translation, number: int) -> str:
    """One line per hypothesis, best first: the number of the source line, score and text, separated by tabs.

    A line without words has one hypothesis, which is repeated.
    """
    hypotheses = translation.hypotheses
    hypotheses += hypotheses[-1:] * (nbest - len(hypotheses))
    return "".join(f"{number}\t{each.score:.4f}\t{_on_one_line(each.text)}\n" for each in hypotheses)


def _json_line(translation: Translation, number: int) -> str:
    """A JSON object with all values of the translation."""
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
    # a line may have other line ends inside, and a model with byte fallback can produce a line feed
    return text.translate(_SPACES)
