"""How to search: the settings of a beam search."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from rskip.generation.length_penalty import LENGTH_PENALTIES

_KINDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text"}


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Settings of `beam_search`. Raises `ValueError` for one that makes no sense.

    beam: hypotheses kept for each sentence at every step; 1 is greedy search.
    nbest: finished hypotheses given back for each sentence, best first; at most `beam`.
    length_penalty: α. A hypothesis of log-probability s and n tokens, the end included, scores s / penalty(n).
    length_penalty_kind: "fairseq": n^α; "gnmt": ((5+n)/6)^α (Wu et al. 2016, Eq. 14).
    min_length: tokens before the end may come.
    max_length_a, max_length_b: at most a·S + b tokens before the end, S the source's length with its end.
    unknown_penalty: taken from the log-probability of the unknown token; infinity forbids it.
    temperature: logits are divided by it.
    no_repeat_ngram: no n-gram of this size comes twice in a hypothesis; 0 allows all.
    sampling: draw tokens instead of keeping the most probable; the `beam` rows of a sentence are then independent
        samples.
    top_k: draw from the k most probable tokens; 0 for all.
    top_p: draw from the fewest tokens whose probabilities reach p; 1 for all.
    seed: of the draws. A sentence's sample depends on it and on the batch that it is in.
    token_scores: give each token's log-probability.
    attention: give each token's attention over the source.
    """

    beam: int = 4
    nbest: int = 1
    length_penalty: float = 1.0
    length_penalty_kind: str = "fairseq"
    min_length: int = 1
    max_length_a: float = 0.0
    max_length_b: int = 200
    unknown_penalty: float = 0.0
    temperature: float = 1.0
    no_repeat_ngram: int = 0
    sampling: bool = False
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    token_scores: bool = False
    attention: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            kind = type(field.default)
            self._check(field.name, _is_of(kind, getattr(self, field.name)), _KINDS[kind])
        checks = [
            ("beam", self.beam >= 1, "at least 1"),
            ("nbest", 1 <= self.nbest <= self.beam, f"between 1 and the beam, {self.beam}"),
            ("length_penalty", math.isfinite(self.length_penalty), "a finite number"),
            ("length_penalty_kind", self.length_penalty_kind in LENGTH_PENALTIES, " or ".join(LENGTH_PENALTIES)),
            ("min_length", self.min_length >= 0, "at least 0"),
            ("max_length_a", 0 <= self.max_length_a < math.inf, "at least 0 and finite"),
            ("max_length_b", self.max_length_b >= 0, "at least 0"),
            ("max_length_b", self.max_length_a > 0 or self.max_length_b >= 1, "at least 1 where max_length_a is 0"),
            (
                "min_length",
                self.max_length_a > 0 or self.min_length <= self.max_length_b,
                f"at most the greatest length, max_length_b={self.max_length_b}",
            ),
            ("unknown_penalty", self.unknown_penalty > -math.inf, "a number, or infinity to forbid the unknown token"),
            ("temperature", 0 < self.temperature < math.inf, "more than 0 and finite"),
            ("no_repeat_ngram", self.no_repeat_ngram >= 0, "at least 0"),
            ("top_k", self.top_k >= 0, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("top_k", self.sampling or not self.top_k, "0 without sampling"),
            ("top_p", self.sampling or self.top_p == 1, "1 without sampling"),
            ("seed", 0 <= self.seed < 2**63, "at least 0 and less than 2^63"),
        ]
        for name, holds, expected in checks:
            self._check(name, holds, expected)

    def greatest_length(self, source_length: int, max_positions: int | None = None) -> int:
        """The most tokens before the end that a source of so many tokens, its end included, can get.

        `max_positions`: the decoder's longest target, the end included; None where any length will do.
        """
        length = int(self.max_length_a * source_length + self.max_length_b)
        return max(length if max_positions is None else min(length, max_positions - 1), 1)

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name}={getattr(self, name)!r}: expected {expected}")


def _is_of(kind: type, value: object) -> bool:
    """Whether the value may stand where the default is of `kind`: a whole number also for a real one."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
