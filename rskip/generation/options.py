"""Defines the settings of a beam search, and the tokens that it handles specially."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta

from rskip.settings.check import Checked
from rskip.settings.errors import SettingError

LengthPenaltyKind = Literal["fairseq", "gnmt"]


def _flag(name: str, metavar: str = "N") -> dict[str, str]:
    """The flag of a setting on the command line, in addition to the field's name."""
    return {"flag": name, "metavar": metavar}


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Checked):
    """Settings of `beam_search`, for S source tokens (including the end) and n target tokens.

    A hypothesis with log-probability s has the score s / penalty(n). With α = `length_penalty`, the penalty is n^α in
    fairseq and ((5+n)/6)^α in GNMT (Wu et al. 2016, Eq. 14). With sampling, the `beam` rows of a sentence are
    independent samples, which depend on `seed` and on the sentence's number in its batch; batches of one call have
    seeds of their own. Without the compiled search they depend on the whole batch.

    :raises SettingError: a value is not possible.
    """

    beam: Annotated[int, Meta(ge=1, le=1000, description="hypotheses kept at every step; 1 is greedy search")] = 4
    nbest: Annotated[int, Meta(
        ge=1, description="outputs per input; if more than 1, each line has number (or path), score and text"
    )] = 1
    length_penalty: Annotated[float, Meta(
        ge=-20, le=20, description="length penalty; more favours longer outputs", extra=_flag("lenpen", "A")
    )] = 1.0
    length_penalty_kind: Annotated[
        LengthPenaltyKind, Meta(description="fairseq: length^lenpen; gnmt: ((5+length)/6)^lenpen")
    ] = "fairseq"
    min_length: Annotated[
        int, Meta(ge=0, le=100_000, description="minimum tokens of an output", extra=_flag("min-len"))
    ] = 1
    max_length_a: Annotated[
        float, Meta(ge=0, le=100, description="maximum tokens: A times the source's + B", extra=_flag("max-len-a", "A"))
    ] = 0.0
    max_length_b: Annotated[int, Meta(
        ge=0, le=100_000, description="maximum tokens, without A times the source's", extra=_flag("max-len-b", "B")
    )] = 200
    unknown_penalty: Annotated[float, Meta(
        ge=-1e6, description="unknown-word penalty; inf forbids them",
        extra={**_flag("unkpen", "P"), "also": (math.inf,),
               "expected": "a number, -1e6 or more, or infinity to forbid the unknown token"},
    )] = 0.0
    temperature: Annotated[
        float, Meta(ge=1e-6, le=1e6, description="divide the logits by T", extra={"metavar": "T"})
    ] = 1.0
    no_repeat_ngram: Annotated[int, Meta(
        ge=0, le=100_000, description="allow no sequence of N tokens twice; 0: allow all",
        extra=_flag("no-repeat-ngram-size"),
    )] = 0
    sampling: Annotated[bool, Meta(description="draw tokens instead of searching for the most probable ones")] = False
    top_k: Annotated[int, Meta(
        ge=0, le=10**8, description="draw from the K most probable tokens; 0 for all", extra=_flag("sampling-topk", "K")
    )] = 0
    top_p: Annotated[float, Meta(
        gt=0, le=1, description="draw from the fewest tokens whose probabilities reach P; 1 for all",
        extra=_flag("sampling-topp", "P"),
    )] = 1.0
    seed: Annotated[int, Meta(
        ge=0, le=2**63 - 1, description="random seed for sampling",
        extra={"expected": "a whole number from 0 to 2^63 - 1"},
    )] = 1
    token_scores: Annotated[bool, Meta(description="give each token's log-probability")] = False
    attention: Annotated[bool, Meta(description="give each token's attention over the source")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        any_length = self.max_length_a > 0
        for name, holds, expected in (
            ("nbest", self.nbest <= self.beam, f"at most beam (--beam), which is {self.beam}"),
            ("max_length_b", any_length or self.max_length_b >= 1, "1 or more where max_length_a is 0"),
            ("min_length", any_length or self.min_length <= self.max_length_b,
             f"at most the max length, {self.max_length_b}"),
            ("top_k", self.sampling or not self.top_k, "0 without sampling"),
            ("top_p", self.sampling or self.top_p == 1, "1 without sampling"),
        ):  # fmt: skip
            if not holds:
                raise SettingError.of_value(name, getattr(self, name), expected)

    def changed(self, settings: Mapping[str, Any], *, further: Iterable[str] = ()) -> SearchOptions:
        """These options with some fields changed.

        :param further: other settings that the caller accepts, for the error.
        :raises SettingError: a name is unknown, or a value is not possible.
        """
        known = [field.name for field in fields(SearchOptions)]
        if unknown := [name for name in settings if name not in known]:
            raise SettingError.of_unknown_key("", unknown[0], [*further, *known])
        return replace(self, **settings)

    def of_part(self, number: int) -> SearchOptions:
        """The options of one of several parts of a call: sampling has a seed per part."""
        return replace(self, seed=(self.seed + number) % 2**63) if self.sampling else self

    def penalty(self, length: float) -> float:
        """The divisor of the log-probability of a hypothesis with `length` tokens, including the end."""
        base = length if self.length_penalty_kind == "fairseq" else (5 + length) / 6
        return float(base) ** self.length_penalty

    def max_length(self, source_length: int, max_positions: int | None = None) -> int:
        """The maximum number of target tokens before the end, for a source of this length, including its end.

        :param max_positions: the decoder's maximum target length, including the end; None: no limit.
        """
        length = int(self.max_length_a * source_length + self.max_length_b)
        return max(length if max_positions is None else min(length, max_positions - 1), 1)


class _Dictionary(Protocol):
    pad_index: int
    eos_index: int
    unk_index: int


@dataclass(frozen=True)
class SpecialTokens:
    """Indices of the special tokens. The defaults are those of rskip's and fairseq's dictionaries.

    :param start: the token before the first; None: the end, as in fairseq.
    """

    padding: int = 1
    end: int = 2
    unknown: int = 3
    start: int | None = None

    @classmethod
    def of(cls, dictionary: _Dictionary, *, start: int | None = None) -> SpecialTokens:
        """The special tokens of a dictionary, rskip's or fairseq's."""
        return cls(dictionary.pad_index, dictionary.eos_index, dictionary.unk_index, start)
