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
LONGEST_EXAMPLE = 60  # characters


class _Counts(TypedDict):
    pairs: Whole
    dropped: dict[str, Whole]
    kept: Whole


class _Required(TypedDict):
    reasons: list[str]
    texts: dict[str, _Counts]
    total: _Counts


class _Content(_Required, total=False):
    """The content of cleaning.json."""

    examples: dict[str, list[str]]


class CleaningReport:
    """Numbers of pairs of each text: all, dropped by reason (with an example), and remaining.

    :param options: determine the reasons that are checked.
    """

    def __init__(self, options: CleaningOptions) -> None:
        self.reasons = checked_reasons(options)
        self._texts: dict[str, Counter[str]] = {}
        self._examples: dict[str, list[str]] = {}

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

    def to_dict(self) -> dict[str, Any]:
        """The content of cleaning.json: reasons, counts of each text and in total, and examples."""
        examples = {reason: self._examples[reason] for reason in self.reasons if reason in self._examples}
        total = Counter[str]()
        for counts in self._texts.values():
            total.update(counts)
        return {
            "reasons": list(self.reasons),
            **({"examples": examples} if examples else {}),
            "texts": {text: self._counts(self._texts[text]) for text in sorted(self._texts)},
            "total": self._counts(total),
        }

    def _counts(self, found: Counter[str]) -> dict[str, Any]:
        dropped = {reason: found[reason] for reason in self.reasons}
        held_out = (SOURCE_HELD_OUT, TARGET_HELD_OUT) if LEAK in self.reasons else ()
        counts: dict[str, Any] = {PAIRS: found[PAIRS], "dropped": dropped, "kept": found[PAIRS] - sum(dropped.values())}
        return counts | {key: found[key] for key in (*held_out, LEFT_IN) if key != LEFT_IN or key in found}


def read_report(path: Path) -> Mapping[str, Any]:
    """The content of a cleaning.json, as `CleaningReport.to_dict` made it."""
    return read_state(path, _Content, advice="move the folder away and prepare the corpus again")


def report_table(report: Mapping[str, Any]) -> str:
    """A plain-text table with one line per text, one for all, remarks on leaks, and examples.

    :param report: the result of `CleaningReport.to_dict` or `read_report`.
    """
    reasons, total = report["reasons"], report["total"]
    rows = [["", PAIRS, *reasons, "kept", ""]]
    for text, counts in [*report["texts"].items(), *([("total", total)] if len(report["texts"]) != 1 else [])]:
        pairs, kept = counts[PAIRS], counts["kept"]
        numbers = (pairs, *(counts["dropped"].get(reason, 0) for reason in reasons), kept)
        share = f"{100 * kept / pairs:.2f} %" if pairs else "-"
        rows.append([text, *(f"{number:,}" for number in numbers), share])
    lines = [columns(rows)]
    before = " (before duplicates were dropped)" if DUPLICATE in reasons else ""
    if LEAK in reasons:
        lines.append(f"pairs dropped because they are also in valid or test: {total['dropped'].get(LEAK, 0):,}")
        sides = f"source {total.get(SOURCE_HELD_OUT, 0):,}, target {total.get(TARGET_HELD_OUT, 0):,}"
        lines.append(f"pairs kept although one sentence is also in valid or test: {sides}{before}")
    elif left_in := total.get(LEFT_IN):
        lines.append(f"pairs kept although they are also in valid or test: {left_in:,}{before}")
    if shown := report.get("examples"):
        examples = [(f"dropped as {reason}:", *(side or '""' for side in pair)) for reason, pair in shown.items()]
        lines.append(columns(examples, left=(0, 1, 2)))
    return "\n".join(lines) + "\n"


def _cut(sentence: str) -> str:
    """A sentence on one line, shortened if it is long."""
    line = " ".join(sentence.split())
    return line if len(line) <= LONGEST_EXAMPLE else f"{line[: LONGEST_EXAMPLE - 3]}..."
