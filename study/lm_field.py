"""The comparisons of connections in a language model, as two recipes announced them before their first runs.

`lm_field.l4` is the table of recipes/lm_field.yaml's variants with 4 layers, and a figure with `kind: times` shows its
losses against the time of a training. `lm_field.rates` is the table of recipes/lm_field_rates.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from msgspec import Struct

from rskip.analysis.measurement import Measurement, Value
from rskip.experiments.recipe import Recipe
from rskip.experiments.results import Results
from rskip.records import Record
from rskip.records.statistics import CONFIDENCE, holm, scipy
from rskip.records.tables import Table
from study.costs import Costs, read_costs

RECIPE, BASELINE = "lm_field", "prenorm_ln"
RATES_RECIPE, RATES = "lm_field_rates", "rates"
CHOSEN_BY, REPORTED = "loss_first_half", "loss_second_half"
MARGIN = 0.01  # a difference of fewer nats is not a win
SAME_TIME = 1.05  # up to this time per update, 2,000 updates of the baseline are of equal time
SEEDS = 3  # minimum number of seeds of a test
TOO_FEW = "too few seeds"
WINS_AT = "l4"  # the depth whose comparisons can be won
PREFIX = f"{RECIPE}."
_LOSS = "Loss: mean nats per character on the second half of the validation text"
_WELCH = (
    f"Welch's t-test. The {CONFIDENCE:.0%} intervals are uncorrected. p has Holm's correction for all comparisons of "
    "its column."
)
_LEGEND = (
    f"{_LOSS} [{CONFIDENCE:.0%} interval], with 4 layers at the rate that is better on the first half; * has run at "
    "one rate only. Time: training time relative to {0}, from the times per update in costs.md. Lowest loss first, "
    f"after the baseline. Differences from {{0}}: {_WELCH} A win, with 4 layers only, is significant and at least "
    f"{MARGIN:g} lower in both."
)


class Welch(Struct, frozen=True, kw_only=True):
    """The difference of two means whose standard deviations may differ.

    :param mean: the second mean minus the first.
    :param interval: its confidence interval, for this comparison alone.
    :param p: corrected p-value.
    """

    mean: float
    interval: tuple[float, float]
    p: float

    @property
    def detected(self) -> bool:
        """Whether the corrected test detects a difference."""
        return self.p < 1 - CONFIDENCE

    def __str__(self) -> str:
        low, high = self.interval
        p = "p < 0.0001" if self.p < 1e-4 else f"p = {self.p:.2g}"
        return f"{self.mean:+.4f} [{low:+.4f}, {high:+.4f}], {p}"


def welch(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[Welch]:
    """Welch's two-sided t-tests of the second scores of each pair against the first, with Holm's correction over all.

    Each side has two or more scores.
    """
    stats = scipy("stats")
    found = []
    for first, second in pairs:
        test = stats.ttest_ind(second, first, equal_var=False)
        low, high = test.confidence_interval(CONFIDENCE)
        found.append((fmean(second) - fmean(first), (float(low), float(high)), float(test.pvalue)))
    corrected = holm([p for _, _, p in found])
    return [Welch(mean=mean, interval=both, p=p) for (mean, both, _), p in zip(found, corrected, strict=True)]


def mean_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The mean and its confidence interval, which one value does not have."""
    if len(values) < 2:
        return values[0], None, None
    half = scipy("stats").t.isf((1 - CONFIDENCE) / 2, len(values) - 1) * stdev(values) / sqrt(len(values))
    return fmean(values), fmean(values) - float(half), fmean(values) + float(half)


@dataclass(kw_only=True)
class Family:
    """The records of a connection at one depth, by learning rate.

    :param update_time: time per update relative to the baseline's; None if it was not measured.
    """

    name: str
    connection: str
    updates: int
    update_time: float | None
    rates: dict[str, list[Record]] = field(default_factory=dict)

    @property
    def rate(self) -> str | None:
        """The rate with the lowest mean loss on the first half, among those at which no seed diverged.

        The mean is over the seeds that ran at every rate that has a run.
        """
        ran = [records for records in self.rates.values() if records]
        seeds = set.intersection(*({record.seed for record in records} for records in ran)) if ran else set()
        ended = {
            rate: fmean(record.metrics[CHOSEN_BY] for record in records if record.seed in seeds)
            for rate, records in self.rates.items()
            if seeds and records and all(CHOSEN_BY in record.metrics for record in records)
        }
        return min(ended, key=lambda rate: ended[rate]) if ended else None

    @property
    def losses(self) -> dict[int, float]:
        """The losses on the second half at that rate, by seed."""
        return {} if self.rate is None else {each.seed: each.metrics[REPORTED] for each in self.rates[self.rate]}

    @property
    def records(self) -> list[Record]:
        return [record for records in self.rates.values() for record in records]


class LanguageModelField:
    """The comparison at one depth.

    :param costs: the measured times per update.
    :param depth: the first part of the variants' names, such as l4.
    """

    def __init__(
        self, recipes: Sequence[Recipe], records: Mapping[str, Sequence[Record]], costs: Costs, depth: str
    ) -> None:
        self.depth, self.rates = depth, list(dict.fromkeys(recipe.parts[-1] for recipe in recipes))
        self.families: dict[str, Family] = {}
        for recipe in recipes:
            if recipe.parts[0] == depth:
                train, time = recipe.config["train"], costs.figures(recipe, recipe)["time"]
                name, connection, updates = recipe.parts[1], train["connection"], train["iterations"]
                family = self.families.setdefault(
                    name, Family(name=name, connection=connection, updates=updates, update_time=time)
                )
                family.rates[recipe.parts[-1]] = list(records.get(recipe.address, ()))
        self.baseline = self.families[BASELINE]
        self.lengths = [each for each in self.families.values() if each.updates != self.baseline.updates]
        others = [each for each in self.families.values() if each is not self.baseline and each not in self.lengths]
        self.others = sorted(others, key=lambda each: fmean(each.losses.values()) if each.losses else 9.0)

    def title(self, family: Family) -> str:
        """The connection, and the number of updates if it is not the baseline's."""
        return f"{family.connection}, {family.updates:,} updates" if family in self.lengths else family.connection

    def time(self, family: Family) -> float | None:
        """The time of a whole training over that of the baseline's 2,000 updates."""
        if family is self.baseline or family in self.lengths:
            return family.updates / self.baseline.updates
        return family.update_time

    def same_time(self, family: Family) -> Family | None:
        """The shortest training of the baseline that takes at least as long; None if none does, or without times."""
        time = self.time(family)
        if time is None:
            return None
        if time <= SAME_TIME:
            return self.baseline
        longer = [each for each in self.lengths if each.updates >= time * self.baseline.updates]
        return min(longer, key=lambda each: each.updates, default=None)

    def tests(self, *, equal_time: bool) -> dict[str, Welch]:
        """Welch's tests of all families with SEEDS seeds, corrected together."""
        pairs = {}
        for family in self.others:
            base = self.same_time(family) if equal_time else self.baseline
            if base is not None and min(len(family.losses), len(base.losses)) >= SEEDS:
                pairs[family.name] = (list(base.losses.values()), list(family.losses.values()))
        return dict(zip(pairs, welch(list(pairs.values())), strict=True)) if pairs else {}

    def verdict(self, family: Family, updates: Welch | None, time: Welch | None) -> str:
        if family.records and family.rate is None:
            return "diverged at every rate"
        if updates is None:
            return TOO_FEW if family.losses else ""
        if not updates.detected:
            longer = self.same_time(family) is not self.baseline  # otherwise it is the same comparison
            return "worse at equal time" if longer and time and time.detected and time.mean > 0 else "not detected"
        if updates.mean > 0:
            return "worse"
        if updates.mean > -MARGIN:
            return f"lower by less than {MARGIN:g}"
        if not (time and time.detected and time.mean <= -MARGIN):
            return "better per update"
        return "win" if self.depth == WINS_AT else "better in both"

    def _ran_partly(self, family: Family) -> bool:
        """Whether some rates, but not all, have a run. Only where connections can win are all rates planned."""
        return self.depth == WINS_AT and 0 < sum(map(bool, family.rates.values())) < len(self.rates)

    def table(self) -> Table:
        updates, times = self.tests(equal_time=False), self.tests(equal_time=True)
        rows = []
        for family in (self.baseline, *self.lengths, *self.others):
            if not family.records:
                continue
            losses, time = list(family.losses.values()), self.time(family)
            mean, low, high = mean_interval(losses) if losses else (None, None, None)
            one, other = updates.get(family.name), times.get(family.name)
            is_baseline = family not in self.others
            rows.append(
                [
                    self.title(family),
                    f"{family.rate or '-'}{'*' if self._ran_partly(family) else ''}",
                    str(len(losses)),
                    "-" if mean is None else f"{mean:.4f}" + (f" [{low:.4f}, {high:.4f}]" if low is not None else ""),
                    "-" if time is None else f"{time:.2f}",
                    str(one) if one else "-",
                    str(other) if other else "-",
                    "" if is_baseline else self.verdict(family, one, other),
                ]
            )
        missing = [self.title(each) for each in self.families.values() if not each.records]
        notes = [_LEGEND.format(self.baseline.connection)]
        if missing:
            notes.append(f"No run record yet: {'; '.join(missing)}.")
        wins = [row[0] for row in rows if row[-1] == "win"]
        if updates and self.depth == WINS_AT:
            few = sum(row[-1] == TOO_FEW for row in rows)
            others = f" The other {few} have fewer than {SEEDS} seeds." if few else ""
            none = f"None of the {len(updates)} tested connections wins.{others}"
            notes.append(f"Wins: {', '.join(wins)}." if wins else none)
        headings = ["connection", "rate", "seeds", "loss", "time", "at equal updates", "at equal time", "result"]
        return Table(
            name=f"{PREFIX}{self.depth}", title=self.depth, headings=headings, rows=rows, notes=notes,
            bold=[(at, len(headings) - 1) for at, row in enumerate(rows) if row[-1] == "win"],
        )  # fmt: skip

    def markdown(self, root: Path) -> str:
        """The table for a page in docs/, below its figure if study/figures.yaml has one and it is drawn."""
        if not any(family.records for family in self.families.values()):
            return "No run record yet.\n"
        table = self.table()
        name = table.name.replace(".", "_")
        figures = root / "study" / "figures.yaml"
        has_figure = figures.is_file() and f"\n{name}:" in figures.read_text(encoding="utf-8")
        shown = f"![Loss against the time of the training](figures/{name}.svg)\n\n"
        drawn = has_figure and bool(self.measurement().rows)
        few = [row for row in table.rows if row[-1] == TOO_FEW]
        if few:  # they are not ranked
            place = {name: at for at, name in enumerate(table.headings)}
            each = (f"{row[0]} {row[place['loss']]}" for row in few)
            note = f"{TOO_FEW.capitalize()} for a ranking (loss): {', '.join(each)}."
            kept = [at for at, row in enumerate(table.rows) if row[-1] != TOO_FEW]
            bold = [(kept.index(at), column) for at, column in table.bold]
            table = replace(table, rows=[table.rows[at] for at in kept], bold=bold, notes=[*table.notes, note])
        return (shown if drawn else "") + table.render("markdown")

    def measurement(self) -> Measurement:
        """One row per family with a loss and a time: mean and interval."""
        rows: list[dict[str, Value]] = []
        for family in (self.baseline, *self.lengths, *self.others):
            time = self.time(family)
            if family.losses and time is not None:
                mean, low, high = mean_interval(list(family.losses.values()))
                is_baseline = family not in self.others
                group = "prenorm+ln, 2,000 to 6,000 updates" if is_baseline else "other connections, 2,000 updates"
                place: dict[str, Value] = {"model": self.title(family), "group": group, "time": time}
                rows.append({**place, "quantity": REPORTED, "value": mean, "lower": low, "upper": high})
        return Measurement(analysis="times", conditions={}, rows=rows)


class HigherRates(LanguageModelField):
    """The comparison of the best connections at more rates and with new seeds.

    Its connections took at most SAME_TIME of the baseline's time per update when they were chosen, so equal updates are
    compared.
    """

    def table(self) -> Table:
        tests = self.tests(equal_time=False)
        shown = [family for family in (self.baseline, *self.others) if family.records]
        rows, bold = [], []
        for at, family in enumerate(shown):
            test = tests.get(family.name)
            verdict = "" if family is self.baseline else self.verdict(family, test, test)
            losses = [_mean_loss(family.rates[rate]) for rate in self.rates]
            rows.append([family.connection, *losses, str(len(family.losses)), str(test) if test else "-", verdict])
            if family.rate is not None:
                bold.append((at, 1 + self.rates.index(family.rate)))
            if verdict == "win":
                bold.append((at, len(rows[-1]) - 1))
        notes = [
            f"{_LOSS}. Bold: the rate with the lowest mean loss on the first half. Difference from "
            f"{self.baseline.connection}, each at its bold rate: {_WELCH}"
        ]
        return Table(
            name=f"{PREFIX}{RATES}", title=RATES,
            headings=["connection", *(f"loss, {rate}" for rate in self.rates), "seeds", "difference", "result"],
            rows=rows, notes=notes, bold=bold,
        )  # fmt: skip


def _mean_loss(records: Sequence[Record]) -> str:
    if not records:
        return "-"
    if any(REPORTED not in record.metrics for record in records):
        return "diverged"
    return f"{fmean(record.metrics[REPORTED] for record in records):.4f}"


def read_fields(root: Path, results: Results, recipes: Sequence[Recipe]) -> dict[str, LanguageModelField]:
    """The comparisons by depth, and `rates`; empty without the recipes.

    :raises ValueError: a record was made with other settings than its variant has now.
    """
    own, again = ([each for each in recipes if each.path.stem == stem] for stem in (RECIPE, RATES_RECIPE))
    found: dict[str, list[Record]] = {}
    by_address = {recipe.address: recipe for recipe in (*own, *again)}
    for record in results.records:
        if record.run in by_address and not record.overrides:
            by_address[record.run].check_record(record)
            found.setdefault(record.run, []).append(record)
    costs, depths = read_costs(root), dict.fromkeys(each.parts[0] for each in own)
    fields = {depth: LanguageModelField(own, found, costs, depth) for depth in depths}
    return fields | ({RATES: HigherRates(again, found, costs, again[0].parts[0])} if again else {})
