"""How to search: the settings of a beam search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from rskip.settings.check import Checked
from rskip.settings.errors import SettingError

LengthPenaltyKind = Literal["fairseq", "gnmt"]


def _flag(name: str, metavar: str = "N") -> dict[str, str]:
    """What a command line calls a setting; its other names are like the field's."""
    return {"flag": name, "metavar": metavar}


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Checked):
    """Settings of `beam_search`, for S source tokens (their end counted) and n target tokens.

    A hypothesis of log-probability s scores s / penalty(n), with n^α as the penalty of fairseq and ((5+n)/6)^α as
    GNMT's (Wu et al. 2016, Eq. 14), α being `length_penalty`. Sampling makes the `beam` rows of a sentence independent
    samples, which depend on `seed` and on the batch that the sentence is in.

    :raises SettingError: a value that makes no sense.
    """

    beam: Annotated[int, Meta(ge=1, le=1000, description="hypotheses kept at every step; 1 is greedy search")] = 4
    nbest: Annotated[
        int, Meta(ge=1, description="translations for each sentence; more than 1: lines of number, score, text")
    ] = 1
    length_penalty: Annotated[
        float,
        Meta(
            ge=-20, le=20, description="length penalty; more favours longer translations", extra=_flag("lenpen", "A")
        ),
    ] = 1.0
    length_penalty_kind: Annotated[
        LengthPenaltyKind, Meta(description="fairseq: length^lenpen; gnmt: ((5+length)/6)^lenpen")
    ] = "fairseq"
    min_length: Annotated[
        int, Meta(ge=0, le=100_000, description="minimum tokens of a translation", extra=_flag("min-len"))
    ] = 1
    max_length_a: Annotated[
        float, Meta(ge=0, le=100, description="maximum tokens: A times the source's + B", extra=_flag("max-len-a", "A"))
    ] = 0.0
    max_length_b: Annotated[
        int, Meta(ge=0, le=100_000, description="constant B of that limit", extra=_flag("max-len-b", "B"))
    ] = 200
    unknown_penalty: Annotated[
        float,
        Meta(
            ge=-1e6,
            description="unknown-word penalty; inf forbids them",
            extra={
                **_flag("unkpen", "P"),
                "expected": "a number, -1e6 or more, or infinity to forbid the unknown token",
                "also": (math.inf,),
            },
        ),
    ] = 0.0
    temperature: Annotated[
        float, Meta(ge=1e-6, le=1e6, description="divide logits by it", extra={"metavar": "T"})
    ] = 1.0
    no_repeat_ngram: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="allow no sequence of N tokens twice; 0: allow all",
            extra=_flag("no-repeat-ngram-size"),
        ),
    ] = 0
    sampling: Annotated[bool, Meta(description="draw tokens instead of searching for the most probable ones")] = False
    top_k: Annotated[
        int,
        Meta(
            ge=0,
            le=10**8,
            description="draw from the K most probable tokens; 0 for all",
            extra=_flag("sampling-topk", "K"),
        ),
    ] = 0
    top_p: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="draw from the fewest tokens whose probabilities reach P; 1 for all",
            extra=_flag("sampling-topp", "P"),
        ),
    ] = 1.0
    seed: Annotated[
        int,
        Meta(
            ge=0,
            le=2**63 - 1,
            description="random seed for sampling",
            extra={"expected": "a whole number from 0 to 2^63 - 1"},
        ),
    ] = 1
    token_scores: Annotated[bool, Meta(description="give each token's log-probability")] = False
    attention: Annotated[bool, Meta(description="give each token's attention over the source")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        any_length = self.max_length_a > 0
        for name, holds, expected in (
            ("nbest", self.nbest <= self.beam, f"at most the beam, {self.beam}"),
            ("max_length_b", any_length or self.max_length_b >= 1, "1 or more where max_length_a is 0"),
            (
                "min_length",
                any_length or self.min_length <= self.max_length_b,
                f"at most the max length, max_length_b, {self.max_length_b}",
            ),
            ("top_k", self.sampling or not self.top_k, "0 without sampling"),
            ("top_p", self.sampling or self.top_p == 1, "1 without sampling"),
        ):
            if not holds:
                raise SettingError.of_value(name, getattr(self, name), expected)

    def changed(self, settings: Mapping[str, Any], *, beside: Iterable[str] = ()) -> SearchOptions:
        """These options with some fields changed.

        :param beside: names that whoever took the settings knows too, for the error.
        :raises SettingError: an unknown name, or a value that makes no sense.
        """
        known = [field.name for field in fields(SearchOptions)]
        for name in settings:
            if name not in known:
                raise SettingError.of_unknown_key("", name, [*beside, *known])
        return replace(self, **settings)

    def penalty(self, length: float) -> float:
        """The divisor of the log-probability of a hypothesis with `length` tokens, including the end."""
        base = length if self.length_penalty_kind == "fairseq" else (5 + length) / 6
        return float(base) ** self.length_penalty

    def greatest_length(self, source_length: int, max_positions: int | None = None) -> int:
        """The most tokens before the end that a source of so many tokens, its end included, can get.

        `max_positions`: the decoder's longest target, the end included; None where any length will do.
        """
        length = int(self.max_length_a * source_length + self.max_length_b)
        return max(length if max_positions is None else min(length, max_positions - 1), 1)
