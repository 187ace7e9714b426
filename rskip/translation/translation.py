"""What a Translator gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class TranslatedHypothesis:
    """One translation of a sentence into T model tokens. What is None was not asked for.

    text: raw text.
    score: the log-probability over its length penalty, the end counted.
    tokens: (T) target tokens, without the end.
    token_scores: (T + 1) each token's log-probability, the end's last.
    alignment: (source token, target token) for each target token, counted from 0: indices into
        `Translation.source_tokens` and `tokens`. The source token is the one that got the most attention, as with
        fairseq's `--print-alignment hard`; the end is never one.
    attention: (T + 1, S + 1), each target token's attention over the source's tokens, both ends last. None for a
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

    source: the sentence as it was given. A blank one has one hypothesis, of no tokens, that scores 0.
    notes: what was done that was not plainly translating it: it was cut, split, or its translation was stopped.
    source_tokens: (S) the model tokens that were translated, without the end.
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

    number: which of those that were given, from 1. reason: why not.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"sentence {number}: {reason}")
        self.number = number
        self.reason = reason
