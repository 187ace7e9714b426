"""Reports what cleaning dropped and why, as a table for the terminal and as JSON next to the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypedDict

from rskip.corpora.cleaning.pairs import DUPLICATE, LEAK, REASONS, checked_reasons
from rskip.corpora.corpus import CleaningOptions, Pair
from rskip.files.state import read_state
from rskip.machine.terminal import columns
from rskip.settings.kinds import Whole

PAIRS = "pairs"
SOURCE_HELD_OUT = "source also in valid or test"
TARGET_HELD_OUT = "target also in valid or test"
LEFT_IN = "also in valid or test"
TOTAL = "total"
LONGEST_EXAMPLE = 60  # characters


class _Counts(TypedDict):
    pairs: Whole
    dropped: dict[str, Whole]


class _Content(TypedDict):
    """The required part of cleaning.json."""

    reasons: list[str]
    texts: dict[str, _Counts]


class CleaningReport:
    """Numbers of pairs of each text: all, dropped by reason (with an example), and remaining.

    Reports of parts are added up with `+`, in any order. Of two examples the left one is used. It can be pickled.

    :param reasons: the reasons that are checked. Reports with other reasons can't be added.
    """

    def __init__(self, reasons: Collection[str]) -> None:
        self.reasons = tuple(reason for reason in REASONS if reason in reasons)
        self._texts: dict[str, Counter[str]] = {}
        self._examples: dict[str, list[str]] = {}

    @classmethod
    def of(cls, options: CleaningOptions) -> CleaningReport:
        """An empty report for these options."""
        return cls(checked_reasons(options))

    def count(
        self,
        text: str,
        reason: str | None,
        *,
        pairs: int = 1,
        held_out_sides: tuple[bool, bool] = (False, False),
        left_in: bool | None = None,
    ) -> None:
        """Counts pairs of a text.

        :param text: its name, such as "europarl-v7".
        :param reason: the reason for dropping them; None: they stay.
        :param held_out_sides: whether their source and their target are in valid or test. Only remaining pairs count.
        :param left_in: whether the pairs themselves are in valid or test, if such pairs aren't dropped. Only remaining
            pairs count. None: not checked.
        """
        counts = self._texts.setdefault(text, Counter())
        counts[PAIRS] += pairs
        if left_in is not None:
            counts[LEFT_IN] += pairs if left_in and reason is None else 0
        if reason is not None:
            counts[reason] += pairs
            return
        for key, held_out in zip((SOURCE_HELD_OUT, TARGET_HELD_OUT), held_out_sides, strict=True):
            if held_out:
                counts[key] += pairs

    def show(self, reason: str, pair: Pair) -> None:
        """Uses a dropped pair as the example of its reason, unless the reason has one."""
        if reason not in self._examples:
            self._examples[reason] = [_cut(sentence) for sentence in pair]

    def drop_duplicates(self, text: str, pairs: int) -> None:
        """Counts remaining pairs of a text as duplicates."""
        self._texts.setdefault(text, Counter())[DUPLICATE] += pairs

    def pairs(self) -> int:
        """The number of pairs before cleaning."""
        return self._of(None)[PAIRS]

    def kept(self) -> int:
        """The number of remaining pairs."""
        return self._kept(self._of(None))

    def _of(self, text: str | None) -> Counter[str]:
        """The counts of one text, or of all."""
        return sum(self._texts.values(), Counter()) if text is None else self._texts[text]

    def _kept(self, counts: Counter[str]) -> int:
        return counts[PAIRS] - sum(counts[reason] for reason in self.reasons)

    def __add__(self, other: CleaningReport) -> CleaningReport:
        result = CleaningReport(self.reasons)
        for report in (self, other):
            for text, counts in report._texts.items():
                result._texts.setdefault(text, Counter()).update(counts)
        result._examples = {**other._examples, **self._examples}
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CleaningReport) and self.to_dict() == other.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """The content of cleaning.json: reasons, counts of each text and in total, and examples."""
        examples = {reason: self._examples[reason] for reason in self.reasons if reason in self._examples}
        return {
            "reasons": list(self.reasons),
            **({"examples": examples} if examples else {}),
            "texts": {text: self._counts(text) for text in sorted(self._texts)},
            TOTAL: self._counts(None),
        }

    def _counts(self, text: str | None) -> dict[str, Any]:
        found = self._of(text)
        dropped = {reason: found[reason] for reason in self.reasons}
        counts: dict[str, Any] = {PAIRS: found[PAIRS], "dropped": dropped, "kept": self._kept(found)}
        if LEAK in self.reasons:
            counts |= {key: found[key] for key in (SOURCE_HELD_OUT, TARGET_HELD_OUT)}
        if any(LEFT_IN in of for name, of in self._texts.items() if text in (None, name)):
            counts[LEFT_IN] = found[LEFT_IN]
        return counts

    @classmethod
    def read(cls, path: Path) -> CleaningReport:
        """Reads a report from a file that holds the result of `to_dict`."""
        return cls.from_dict(read_state(path, _Content, advice="move the folder away and prepare the corpus again"))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CleaningReport:
        """The report of a dictionary from `to_dict`."""
        report = cls(values["reasons"])
        for text, counts in values["texts"].items():
            more = {key: counts[key] for key in (SOURCE_HELD_OUT, TARGET_HELD_OUT, LEFT_IN) if key in counts}
            report._texts[text] = Counter({PAIRS: counts[PAIRS], **counts["dropped"], **more})
        report._examples = {reason: list(pair) for reason, pair in values.get("examples", {}).items()}
        return report

    def table(self) -> str:
        """A plain-text table with one line per text, one for all, remarks on leaks, and examples."""
        rows = [["", PAIRS, *self.reasons, "kept", ""]]
        for text in [*sorted(self._texts), *([None] if len(self._texts) != 1 else [])]:
            counts = self._of(text)
            pairs, kept = counts[PAIRS], self._kept(counts)
            numbers = (pairs, *(counts[reason] for reason in self.reasons), kept)
            share = f"{100 * kept / pairs:.2f} %" if pairs else "-"
            rows.append([text or TOTAL, *(f"{number:,}" for number in numbers), share])
        lines, total = [columns(rows)], self._of(None)
        before = " (before duplicates were dropped)" if DUPLICATE in self.reasons else ""
        if LEAK in self.reasons:
            lines.append(f"pairs dropped because they are also in valid or test: {total[LEAK]:,}")
            sides = f"source {total[SOURCE_HELD_OUT]:,}, target {total[TARGET_HELD_OUT]:,}"
            lines.append(f"pairs kept although one sentence is also in valid or test: {sides}{before}")
        elif total[LEFT_IN]:
            lines.append(f"pairs kept although they are also in valid or test: {total[LEFT_IN]:,}{before}")
        shown = [(reason, self._examples[reason]) for reason in self.reasons if reason in self._examples]
        if shown:
            examples = [(f"dropped as {reason}:", *(side or '""' for side in pair)) for reason, pair in shown]
            lines.append(columns(examples, left=(0, 1, 2)))
        return "\n".join(lines) + "\n"


def _cut(sentence: str) -> str:
    """A sentence on one line, shortened if it is long."""
    line = " ".join(sentence.split())
    return line if len(line) <= LONGEST_EXAMPLE else f"{line[: LONGEST_EXAMPLE - 3]}..."
