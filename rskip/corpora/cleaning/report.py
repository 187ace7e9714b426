"""Reports what cleaning dropped and why, as a table for the terminal and as JSON next to the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from rskip.corpora.cleaning.pairs import DUPLICATE, LEAK, checked_reasons
from rskip.corpora.corpus import CleaningOptions
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

    :param reasons: the reasons that are checked.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        self._texts: dict[str, Counter[str]] = {}
        self._examples: dict[str, list[str]] = {}

    @classmethod
    def of(cls, options: CleaningOptions) -> CleaningReport:
        """An empty report for these options."""
        return cls(checked_reasons(options))

    def add(
        self, text: str, counts: Mapping[str, int], examples: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Adds counts of a text.

        :param text: its name, such as "europarl-v7".
        :param counts: the numbers of its PAIRS, of those dropped for each reason, and of those that stay although the
            source, the target or (if these pairs aren't dropped) both are in valid or test.
        :param examples: a dropped pair for each reason. The first one that is added is used.
        """
        self._texts.setdefault(text, Counter()).update(counts)
        for reason, pair in (examples or {}).items():
            self._examples.setdefault(reason, [_cut(sentence) for sentence in pair])

    @property
    def total(self) -> Counter[str]:
        """The counts of all texts."""
        total = Counter[str]()
        for counts in self._texts.values():
            total.update(counts)
        return total

    def kept(self, counts: Counter[str] | None = None) -> int:
        """The number of remaining pairs, of all texts or by the counts of one."""
        counts = self.total if counts is None else counts
        return counts[PAIRS] - sum(counts[reason] for reason in self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """The content of cleaning.json: reasons, counts of each text and in total, and examples."""
        examples = {reason: self._examples[reason] for reason in self.reasons if reason in self._examples}
        return {
            "reasons": list(self.reasons),
            **({"examples": examples} if examples else {}),
            "texts": {text: self._counts(self._texts[text]) for text in sorted(self._texts)},
            TOTAL: self._counts(self.total),
        }

    def _counts(self, found: Counter[str]) -> dict[str, Any]:
        dropped = {reason: found[reason] for reason in self.reasons}
        held_out = (SOURCE_HELD_OUT, TARGET_HELD_OUT) if LEAK in self.reasons else ()
        counts: dict[str, Any] = {PAIRS: found[PAIRS], "dropped": dropped, "kept": self.kept(found)}
        return counts | {key: found[key] for key in (*held_out, LEFT_IN) if key != LEFT_IN or key in found}

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
            report.add(text, {PAIRS: counts[PAIRS], **counts["dropped"], **more})
        report._examples = {reason: list(pair) for reason, pair in values.get("examples", {}).items()}
        return report

    def table(self) -> str:
        """A plain-text table with one line per text, one for all, remarks on leaks, and examples."""
        rows, total = [["", PAIRS, *self.reasons, "kept", ""]], self.total
        texts = [(text, self._texts[text]) for text in sorted(self._texts)]
        for text, counts in [*texts, *([(TOTAL, total)] if len(texts) != 1 else [])]:
            pairs, kept = counts[PAIRS], self.kept(counts)
            numbers = (pairs, *(counts[reason] for reason in self.reasons), kept)
            share = f"{100 * kept / pairs:.2f} %" if pairs else "-"
            rows.append([text, *(f"{number:,}" for number in numbers), share])
        lines = [columns(rows)]
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
