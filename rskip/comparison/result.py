"""What a comparison found: a table, a verdict in words, a chart and a page."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import compress
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import TYPE_CHECKING, Any

import msgspec

from rskip.comparison.chart import as_svg, draw
from rskip.comparison.plan import PILOT, Measured, Plan
from rskip.comparison.running import Runs, of_length
from rskip.comparison.subjects import Job
from rskip.extras import extra
from rskip.files.whole import atomic_file
from rskip.machine.terminal import columns
from rskip.records import Record
from rskip.records.statistics import CONFIDENCE, DEVIATIONS_DIFFER, MOST_SEEDS, POWER, Difference, compare

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FEW_UPDATES = 100
NOTES = f"""Losses are on held-out data, at the end of each run; ± is the standard deviation over seeds. A difference is
to the baseline, with a {CONFIDENCE:.0%} interval that holds for all connections at once (Dunnett's test). Connections
whose losses vary so much more that they can't be pooled are compared in pairs by seed (Holm's correction of p, none of
the interval); the level holds for each of the two kinds. In the same time a slower connection is compared with a
baseline that trains longer: its loss is interpolated, in the logarithm of the updates, between runs of two lengths,
each with a whole schedule. Learning rates were chosen by a seed that is not compared. kept: memory of an update's
forward pass for its backward pass."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A connection's results. `losses` by seed; `updates` and `time`: its differences after the same of each."""

    connection: str
    rate: float | None
    losses: Mapping[int, float]
    diverged: int
    ratio: float
    measured: Measured
    updates: Difference | None = None
    time: Difference | None = None

    @property
    def loss(self) -> float | None:
        return fmean(self.losses.values()) if self.losses else None


@dataclass(frozen=True)
class Comparison:
    """The results of a comparison's runs, complete or so far. `str` gives the table and the verdict."""

    runs: Runs

    @property
    def plan(self) -> Plan:
        return self.runs.plan

    @cached_property
    def _rates(self) -> dict[str, float]:
        return self.runs.rates()

    @cached_property
    def _finished(self) -> list[tuple[Job, Record]]:
        found = ((job, self.runs.read(job)) for job in self.runs.jobs())
        return [(job, record) for job, record in found if record is not None]

    def losses(self, connection: str, updates: int) -> dict[int, float]:
        """The last held-out loss of each seed's run of this length; diverged runs have none."""
        return {job.seed: run.metrics["loss"] for job, run in of_length(self._finished, connection, updates)}

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The baseline's results, then those of the connections in the order of the plan."""
        plan, losses = self.plan, {each: self.losses(each, self.plan.updates) for each in self.plan.all}
        baseline = losses[plan.baseline]
        gains = {each: self._gain(each) for each in plan.connections}
        in_time = [
            {} if (gain := gains[each]) is None else {seed: loss - gain for seed, loss in losses[each].items()}
            for each in plan.connections
        ]
        updates = [None, *differences(baseline, [losses[each] for each in plan.connections])]
        time = [None, *differences(baseline, in_time)]
        return tuple(
            Row(
                connection=each,
                rate=self._rates.get(each),
                losses=losses[each],
                diverged=sum(
                    job.connection == each and run.diverged and (job.seed != PILOT or each not in self._rates)
                    for job, run in self._finished
                ),
                ratio=plan.ratio(each),
                measured=plan.measured[each],
                updates=updates[at],
                time=time[at],
            )
            for at, each in enumerate(plan.all)
        )

    def _gain(self, connection: str) -> float | None:
        """What the baseline's loss changes by if it trains for the time of this connection; None: not known yet."""
        plan = self.plan
        if not plan.is_slower(connection):
            return 0.0
        short, long = self.losses(plan.baseline, plan.updates), self.losses(plan.baseline, plan.longest)
        if not (seeds := short.keys() & long.keys()):
            return None
        share = min(1.0, math.log(plan.ratio(connection)) / math.log(plan.longest / plan.updates))
        return share * fmean(long[seed] - short[seed] for seed in seeds)

    def verdict(self) -> str:
        """What was found, a line for each connection, and what would make it more certain."""
        rows = self.rows
        lines = [self._sentence(row) for row in rows[1:]]
        if rows[0].loss is None:
            lines = [f"{self.plan.baseline} has no loss yet."]
        return "\n".join([*lines, *self._caveats()])

    def _sentence(self, row: Row) -> str:
        if row.loss is None:
            return f"`{row.connection}` {'diverged at every learning rate' if row.diverged else 'has no loss yet'}."
        text = f"`{row.connection}` {_finding(row.updates)} after the same updates"
        if not self.plan.is_slower(row.connection):
            text += ", which take about the same time"
        else:
            text += f"; in the same time ({row.ratio:.2f} x per update) it {_finding(row.time)}"
        return f"{text}{f'; {row.diverged} of its runs diverged' if row.diverged else ''}."

    def _caveats(self) -> list[str]:
        """What limits the findings, and the commands that would say more."""
        plan, lines = self.plan, []
        if plan.updates < FEW_UPDATES:
            few = f"{plan.updates} updates are too few to compare connections"
            lines.append(f"{few}: give more minutes, and another output folder.")
        chosen = {row.rate for row in self.rows} if len(plan.rates) > 1 else set()
        low, high = min(plan.rates), max(plan.rates)
        if further := [*([low / 3] if low in chosen else []), *([high * 3] if high in chosen else [])]:
            rates = [f"{rate:g}" for rate in sorted((*plan.rates, *(float(f"{each:.3g}") for each in further)))]
            lines.append("Chosen learning rates are at an end of those that were tried; others may change this:")
            lines.append(f"    {self._command('--rates', *rates)}")
        if plan.seeds < 3 and any(row.updates and row.updates.p is None for row in self.rows):
            lines += ["With three seeds the differences can be tested:", f"    {self._command('--seeds', '3')}"]
        tested = [(row.connection, row.updates) for row in self.rows if row.updates and row.updates.p is not None]
        needed = {name: each.needed for name, each in tested if not each.detected}
        if found := {name: seeds for name, seeds in needed.items() if seeds}:
            seeds = max(found.values())
            named = " and ".join(f"`{name}` ({seeds})" for name, seeds in found.items())
            detected = f"would be detected with probability {POWER}, if they are the true ones"
            lines.append(f"With more seeds these differences {detected}: {named}:")
            lines.append(f"    {self._command('--seeds', str(seeds))}")
        if never := [f"`{name}`" for name, seeds in needed.items() if not seeds]:
            lines.append(f"More than {MOST_SEEDS} seeds would be needed for {' and '.join(never)}.")
        return lines

    def _command(self, flag: str, *values: str) -> str:
        """The comparison's command with other values of a flag."""
        if not (words := self.plan.command):
            listed = f"[{', '.join(values)}]" if len(values) > 1 else values[0]
            return f"rskip.compare(..., {flag.removeprefix('--')}={listed})"
        at = words.index(flag) if flag in words else len(words)
        after = next((place for place in range(at + 1, len(words)) if words[place].startswith("-")), len(words))
        return shlex.join([*words[:at], *words[after:], flag, *values])

    def short(self) -> str:
        """The table as text."""
        return columns([HEADINGS, *map(_cells, self.rows)], left=(0,))

    def __str__(self) -> str:
        title = f"{self.plan.name}: held-out loss after {self.plan.updates:,} updates (* detected)"
        return f"{title}\n\n{self.short()}\n\n{self.verdict()}\n"

    def table(self) -> DataFrame:
        """One row per connection: losses, differences with intervals and p, time, memory, parameters.

        :raises MissingExtra: pandas is missing.
        """
        with extra("report", what="a table of pandas"):
            from pandas import DataFrame
        return DataFrame([_numbers(row) for row in self.rows]).set_index("connection")

    def figure(self) -> Figure:
        """Held-out loss against training time, a line for each connection with its name at the end.

        :raises MissingExtra: matplotlib is missing.
        """
        lines = {each: self._curve(each, self.plan.updates) for each in self.plan.all}
        if self.plan.longest > self.plan.updates:
            lines[f"{self.plan.baseline}, longer"] = self._curve(self.plan.baseline, self.plan.longest)
        return draw({name: curve for name, curve in lines.items() if curve})

    def _curve(self, connection: str, updates: int) -> list[tuple[float, float]]:
        """Minutes of training and held-out loss, the mean over the seeds whose runs ended."""
        found: dict[int, list[float]] = {}
        for _, run in of_length(self._finished, connection, updates):
            for point in run.curve:
                found.setdefault(point["iteration"], []).append(point["valid_loss"])
        minutes = self.plan.measured[connection].seconds / 60
        return [(iteration * minutes, fmean(losses)) for iteration, losses in sorted(found.items())]

    def html(self, path: str | Path) -> None:
        """Writes one page that stands alone: verdict, chart, table, and how it was made."""
        headings = "".join(f"<th>{escape(each)}</th>" for each in HEADINGS)
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in _cells(row)) for row in self.rows)
        rows = "".join(f"<tr>{each}</tr>" for each in cells)
        verdict = "".join(f"<li>{escape(line)}</li>" for line in self.verdict().splitlines())
        page = _PAGE.format(
            title=escape(self.plan.name), verdict=verdict, chart=as_svg(self.figure()), headings=headings, rows=rows,
            notes=escape(NOTES), command=escape(shlex.join(self.plan.command) or "rskip.compare(...)"),
            updates=f"{self.plan.updates:,}", seeds=self.plan.seeds,
            rates=", ".join(f"{each:g}" for each in self.plan.rates),
        )  # fmt: skip
        with atomic_file(path) as temporary:
            temporary.write_text(page, encoding="utf-8")


def differences(
    baseline: Mapping[int, float], variants: Sequence[Mapping[int, float]]
) -> list[Difference | None]:
    """The variants' differences from the baseline, with one loss per seed each (`rskip.records.statistics.compare`).

    If standard deviations differ, the variants with the largest ones are compared in pairs, until those of the others
    can be pooled.
    """
    pooled = [len(losses) > 1 for losses in variants]
    while True:
        found = compare(baseline, variants, pooled)
        if not any(each is not None and each.unpooled == DEVIATIONS_DIFFER for each in found):
            return found
        widest = max(compress(range(len(variants)), pooled), key=lambda at: variance(variants[at].values()))
        pooled[widest] = False


def _finding(difference: Difference | None) -> str:
    """A difference in words that follow the connection's name."""
    if difference is None:
        return "can't be compared yet"
    if difference.p is None or difference.interval is None:
        return f"differs by {difference.mean:+.3f}, which these seeds can't test"
    if not difference.detected:
        return f"shows no detected difference ({difference.mean:+.3f}; detectable: {difference.detectable:.3f})"
    low, high = sorted(map(abs, difference.interval))
    word = "lower" if difference.mean < 0 else "higher"
    return f"is {word} by {abs(difference.mean):.3f} [{low:.3f}, {high:.3f}]"


HEADINGS = ("connection", "lr", "seeds", "loss", "same updates", "same time", "time", "ms", "kept", "parameters")


def _cells(row: Row) -> list[str]:
    values = list(row.losses.values())
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return [
        row.connection,
        "" if row.rate is None else f"{row.rate:g}",
        f"{len(values)}{f', {row.diverged} diverged' if row.diverged else ''}",
        "" if row.loss is None else f"{row.loss:.4f}{spread}",
        _interval(row.updates),
        _interval(row.time),
        f"{row.ratio:.2f} x",
        f"{1000 * row.measured.seconds:.1f}",
        f"{row.measured.kept_megabytes:.1f} MB",
        f"{row.measured.parameters:,}",
    ]


def _interval(difference: Difference | None) -> str:
    if difference is None:
        return ""
    mark = "*" if difference.detected else ""
    if difference.interval is None:
        return f"{difference.mean:+.3f}"
    low, high = difference.interval
    return f"{difference.mean:+.3f}{mark} [{low:+.3f}, {high:+.3f}]"


def _numbers(row: Row) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "connection": row.connection, "rate": row.rate, "seeds": len(row.losses), "diverged": row.diverged,
        "loss": row.loss, "std": stdev(row.losses.values()) if len(row.losses) > 1 else None,
        "time_ratio": row.ratio, **msgspec.structs.asdict(row.measured),
    }  # fmt: skip
    for name, each in (("updates", row.updates), ("time", row.time)):
        low, high = (each.interval if each else None) or (None, None)
        numbers |= {
            f"difference_same_{name}": each.mean if each else None, f"low_same_{name}": low, f"high_same_{name}": high,
            f"p_same_{name}": each.p if each else None, f"detectable_same_{name}": each.detectable if each else None,
        }  # fmt: skip
    return numbers


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; font-size: 14px; }} div {{ overflow-x: auto; }}
th, td {{ text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #8884; white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }} code, pre {{ font-size: 14px; white-space: pre-wrap; }}
svg {{ width: 100%; height: auto; background: white; }} .small {{ font-size: 14px; }}
</style>
<h1>{title}</h1>
<ul>{verdict}</ul>
{chart}
<div><table><tr>{headings}</tr>{rows}</table></div>
<p class="small">* detected. {updates} updates per run, {seeds} seeds, learning rates {rates}. {notes}</p>
<pre>{command}</pre>
</html>
"""
