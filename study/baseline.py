"""Comparisons of connections with a baseline over seeds, as their recipes announced them before their first runs.

`COMPARISONS` has each comparison's recipes and rules. Its table for a page in docs/ is `compared.NAME`. Some compare at
equal updates and at equal time, the others at equal updates, each connection at its best learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev, variance

from msgspec import Struct

from rskip.analysis.measurement import Measurement, Value
from rskip.experiments.recipe import Recipe
from rskip.experiments.results import Results
from rskip.records import Record
from rskip.records.statistics import CONFIDENCE, TTest, holm, scipy
from rskip.records.tables import Table
from study.costs import Costs, read_costs

PREFIX = "compared."
SAME_TIME = 1.05  # up to this time per update, as many updates of the baseline are of equal time
SEEDS = 3  # minimum number of seeds of a test
TOO_FEW = "too few seeds"
_LENGTHS = {"iterations": "updates", "max-update": "updates", "epochs": "epochs"}  # settings of a training, and units
_SECOND_HALF = "mean nats per character on the second half of the validation text"
_WELCH = (
    f"Welch's t-test. The {CONFIDENCE:.0%} intervals are uncorrected. p has Holm's correction for all comparisons of "
    "its column."
)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a comparison's recipes announced.

    :param model: the model, data and measure in a few words.
    :param runs: shell patterns of the recipes' addresses. A variant's name is `name`, or has parts around it: the depth
        before it and the learning rate behind it.
    :param reported, chosen_by: metrics of run records: the one that is compared, and the one that chooses the rate.
    :param meaning, unit: what `reported` is, in words, and its unit.
    :param decimals: digits of its values after the point.
    :param margin: a smaller difference is not a win.
    :param equal_time: whether equal time is tested too.
    :param against: a family's length of the baseline for equal time, where it was fixed before the first run.
    """

    model: str
    runs: tuple[str, ...]
    baseline: str = "prenorm_ln"
    reported: str = "loss_second_half"
    chosen_by: str = "loss_first_half"
    meaning: str = _SECOND_HALF
    unit: str = "nats"
    decimals: int = 4
    margin: float = 0.01
    equal_time: bool = False
    against: Mapping[str, str] = field(default_factory=dict)


_WHOLE = Rules(
    model="", runs=(), reported="loss", chosen_by="loss", meaning="mean nats per character on the validation text"
)
_IMAGES = Rules(
    model="", runs=(), reported="error", chosen_by="error", meaning="mean test error, %", unit="%", decimals=2,
    margin=0.0, equal_time=True,
)
# With 6 + 6 layers a second rate, 0.004, joins when all of its announced runs are there: until then a single seed would
# choose a rate.
_TRANSLATION = Rules(
    model="translation, 6 + 6 layers",
    runs=tuple(
        f"field/6x6_{name}_lr2e-3"
        for name in ("prenorm_ln", "1xskip_ln", "sas", "2xskip_ln", "askip_ln", "hyper", "attnres", "mhc")
    ),
    reported="valid_loss", chosen_by="valid_loss", meaning="mean validation loss, bits per token",
    unit="bits", equal_time=True,
)  # fmt: skip
COMPARISONS = {
    "l4": Rules(model="language model, 4 layers", runs=("lm_field/l4_*",), equal_time=True),
    "rates": Rules(model="language model, 4 layers", runs=("lm_field_rates/*",)),
    "dual": Rules(model="language model, 4 layers", runs=("lm_dual/*",)),
    "own_rates": Rules(model="language model, 4 layers", runs=("lm_rates/*",)),
    "deep_rates": Rules(
        model="language model, 24 layers", equal_time=True, runs=(
            "lm_deep_rates/*", "lm_deep/prenorm_ln_3000", "lm_streams/l24_prenorm_ln", "lm_streams/l24_hyper",
            "lm_streams/l24_mhc-start_deepseek",
        ),
    ),
    "deep_siamese": Rules(
        model="language model, 24 layers", equal_time=True, runs=("lm_deep_siamese/*",),
        against={"siamese": "prenorm_ln_2200"},
    ),
    "deep_all": Rules(model="language model, 24 layers", equal_time=True, runs=("lm_deep_all/*",)),
    "deep_starts": Rules(
        model="mHC, 24 layers", baseline="mhc", runs=("lm_deep_all/mhc_lr*", "lm_deep_all/mhc-start_*"),
    ),
    "starts4": replace(
        _WHOLE, model="mHC, 4 layers", baseline="mhc", runs=("lm_streams/l4_mhc", "lm_streams/l4_mhc-start_*"),
    ),
    "starts24": replace(
        _WHOLE, model="mHC, 24 layers", baseline="mhc", runs=("lm_streams/l24_mhc", "lm_streams/l24_mhc-start_*"),
    ),
    "vit12": replace(_IMAGES, model="vision transformer, 12 blocks", runs=("cifar10_vit/d12_*",)),
    "vit_long": replace(
        _IMAGES, model="vision transformer, 12 blocks",
        runs=tuple(f"cifar10_vit/long_{name}" for name in ("prenorm_ln", "residual_dual", "hyper")),
    ),
    "vit24": replace(_IMAGES, model="vision transformer, 24 blocks", runs=("cifar10_vit/d24_*",)),
    "translation": _TRANSLATION,
    "translation18": replace(
        _TRANSLATION, model="translation, 18 + 18 layers", equal_time=False, baseline="prenorm_ln_warmup800",
        runs=tuple(f"field/18x18_{name}_warmup800_lr[24]e-3" for name in ("prenorm_ln", "deepnorm", "3xskip_ln")),
    ),
}  # fmt: skip


class Welch(Struct, frozen=True, kw_only=True):
    """The difference of two means whose standard deviations may differ.

    :param mean: the second mean minus the first.
    :param interval: its confidence interval, for this comparison alone.
    :param p: corrected p-value.
    :param detectable: the true difference that the test detects with a probability of 80 %, at the level that Holm's
        correction has for the smallest p.
    :param decimals: digits of the text after the point.
    :param seeds: numbers of the first and of the second values.
    """

    mean: float
    interval: tuple[float, float]
    p: float
    detectable: float
    decimals: int = 4
    seeds: tuple[int, int] = (SEEDS, SEEDS)

    @property
    def detected(self) -> bool:
        """Whether the corrected test detects a difference."""
        return self.p < 1 - CONFIDENCE

    def __str__(self) -> str:
        mean, low, high = (f"{each:+.{self.decimals}f}" for each in (self.mean, *self.interval))
        p = "p < 0.0001" if self.p < 1e-4 else f"p = {self.p:.2g}"
        return f"{mean} [{low}, {high}], {p}"


def welch(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], *, decimals: int = 4) -> list[Welch]:
    """Welch's two-sided t-tests of the second scores of each pair against the first, with Holm's correction over all.

    Each side has two or more scores.
    """
    stats = scipy("stats")
    tests = [stats.ttest_ind(second, first, equal_var=False) for first, second in pairs]
    found = []
    for (first, second), test, p in zip(pairs, tests, holm([float(test.pvalue) for test in tests]), strict=True):
        low, high = test.confidence_interval(CONFIDENCE)
        error = sqrt(variance(first) / len(first) + variance(second) / len(second))
        strict = TTest(error, float(stats.t.isf((1 - CONFIDENCE) / 2 / len(pairs), test.df)), float(test.df))
        mean, interval = fmean(second) - fmean(first), (float(low), float(high))
        seeds = (len(first), len(second))
        found.append(
            Welch(mean=mean, interval=interval, p=p, detectable=strict.detectable, decimals=decimals, seeds=seeds)
        )
    return found


def mean_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The mean and its confidence interval, which one value does not have."""
    if len(values) < 2:
        return values[0], None, None
    half = scipy("stats").t.isf((1 - CONFIDENCE) / 2, len(values) - 1) * stdev(values) / sqrt(len(values))
    return fmean(values), fmean(values) - float(half), fmean(values) + float(half)


def _relative(own: float | None, base: float | None) -> float | None:
    return None if own is None or base is None else own / base


@dataclass(kw_only=True)
class Family:
    """The records of a connection, by learning rate.

    :param length: the training's, in `unit`.
    :param update_time, memory: time per update, and memory kept for the backward pass, relative to the baseline's; None
        if they were not measured.
    """

    rules: Rules
    connection: str
    length: int
    unit: str
    update_time: float | None
    memory: float | None
    rates: dict[str, list[Record]] = field(default_factory=dict)

    @property
    def rate(self) -> str | None:
        """The rate that is best by the choosing metric, on average, among those at which no seed diverged.

        The mean is over the seeds that ran at every rate that has a run.
        """
        ran, metric = [records for records in self.rates.values() if records], self.rules.chosen_by
        seeds = set.intersection(*({record.seed for record in records} for records in ran)) if ran else set()
        ended = {
            rate: fmean(record.metrics[metric] for record in records if record.seed in seeds)
            for rate, records in self.rates.items()
            if seeds and records and all(metric in record.metrics for record in records)
        }
        return min(ended, key=lambda rate: ended[rate]) if ended else None

    @property
    def losses(self) -> dict[int, float]:
        """The reported values at that rate, by seed."""
        shown = self.rules.reported
        return {} if self.rate is None else {each.seed: each.metrics[shown] for each in self.rates[self.rate]}

    @property
    def records(self) -> list[Record]:
        return [record for records in self.rates.values() for record in records]


class BaselineComparison:
    """The comparison of the rules' recipes, with the records that there are.

    :param records: the runs' records by address, without overrides.
    :param costs: the measured times per update.
    """

    def __init__(
        self, rules: Rules, recipes: Sequence[Recipe], records: Mapping[str, Sequence[Record]], costs: Costs
    ) -> None:
        self.rules = rules
        self.families: dict[str, Family] = {}
        for recipe in recipes:
            if any(fnmatchcase(recipe.address, run) for run in rules.runs):
                train, rate = recipe.config["train"], f"{recipe.config['train']['lr']:g}"
                name = [part for part in recipe.parts if not part.startswith("lr")][-1]
                length, unit = next((train[key], unit) for key, unit in _LENGTHS.items() if train.get(key))
                figures = costs.figures(recipe, recipe)
                family = self.families.setdefault(
                    name,
                    Family(
                        rules=rules, connection=train["connection"], length=length, unit=unit,
                        update_time=figures["time"], memory=figures["memory"],
                    ),
                )  # fmt: skip
                family.rates[rate] = list(records.get(recipe.address, ()))
        self.rates = list(dict.fromkeys(rate for family in self.families.values() for rate in family.rates))
        self.baseline = self.families[rules.baseline]
        time, memory = self.baseline.update_time, self.baseline.memory
        for family in self.families.values():
            family.update_time = _relative(family.update_time, time)
            family.memory = _relative(family.memory, memory)
        self.lengths = [each for each in self.families.values() if each.length != self.baseline.length]
        others = [each for each in self.families.values() if each is not self.baseline and each not in self.lengths]
        self.others = sorted(others, key=lambda each: fmean(each.losses.values()) if each.losses else 1e9)

    @property
    def has_several_rates(self) -> bool:
        """Whether it chooses the rate of a connection itself."""
        return any(len(each.rates) > 1 for each in self.families.values())

    def title(self, family: Family) -> str:
        """The connection, and the length if it is not the baseline's."""
        return f"{family.connection}, {family.length:,} {family.unit}" if family in self.lengths else family.connection

    def time(self, family: Family) -> float | None:
        """The time of a whole training over that of the baseline."""
        if family is self.baseline or family in self.lengths:
            return family.length / self.baseline.length
        return family.update_time

    def same_time(self, family: Family) -> Family | None:
        """The shortest training of the baseline that takes at least as long, or the one that its rules name.

        None if none takes as long, or without times.
        """
        if family.connection in self.rules.against:
            return self.families[self.rules.against[family.connection]]
        time = self.time(family)
        if time is None:
            return None
        if time <= SAME_TIME:
            return self.baseline
        longer = [each for each in self.lengths if each.length >= time * self.baseline.length]
        return min(longer, key=lambda each: each.length, default=None)

    def tests(self, *, equal_time: bool) -> dict[str, Welch]:
        """Welch's tests of all connections with SEEDS seeds, corrected together."""
        pairs = {}
        for family in self.others:
            base = self.same_time(family) if equal_time else self.baseline
            if base is not None and min(len(family.losses), len(base.losses)) >= SEEDS:
                pairs[family.connection] = (list(base.losses.values()), list(family.losses.values()))
        tests = welch(list(pairs.values()), decimals=self.rules.decimals) if pairs else []
        return dict(zip(pairs, tests, strict=True))

    def verdicts(self) -> dict[str, str]:
        """What the tests say of each connection with a record, in words."""
        updates, times = self.tests(equal_time=False), self.tests(equal_time=True)
        return {
            each.connection: self._verdict(each, updates.get(each.connection), times.get(each.connection))
            for each in self.others
            if each.records
        }

    def _verdict(self, family: Family, updates: Welch | None, time: Welch | None) -> str:
        if family.rate is None:
            return "diverged at every rate"
        if updates is None:
            return TOO_FEW
        margin, longer = self.rules.margin, self.same_time(family) is not self.baseline
        if not self.rules.equal_time:
            time = None if longer else updates
        if not updates.detected:  # without a longer training, both comparisons are the same
            return "worse at equal time" if longer and time and time.detected and time.mean > 0 else "not detected"
        if updates.mean > 0:
            return "worse"
        if updates.mean > -margin:
            return f"lower by less than {margin:g}"
        if not (time and time.detected and time.mean <= -margin):
            return "better per update"
        return "win"

    def table(self, name: str) -> Table:
        """The table for a page in docs/; connections with too few seeds for a test are only listed below it.

        :param name: its key in `COMPARISONS`.
        """
        verdicts = self.verdicts()
        few = [each for each in self.others if verdicts.get(each.connection) == TOO_FEW]
        shown = [each for each in (self.baseline, *self.lengths, *self.others) if each.records and each not in few]
        results = [verdicts.get(each.connection, "") if each in self.others else "" for each in shown]
        own = self._of_times(shown) if self.rules.equal_time else self._of_rates(shown)
        heading, middle, own_notes = own
        rows = [[self.title(e), *cells, result] for e, cells, result in zip(shown, middle, results, strict=True)]
        bold = [(at, len(heading) + 1) for at, result in enumerate(results) if result == "win"]
        if not self.rules.equal_time and self.has_several_rates:
            bold += [(at, 1 + self.rates.index(each.rate)) for at, each in enumerate(shown) if each.rate is not None]
        notes = own_notes
        if missing := [self.title(each) for each in self.families.values() if not each.records]:
            notes.append(f"No run record yet: {'; '.join(missing)}.")
        if few:  # they are not ranked
            listed = ", ".join(f"{each.connection} {self._mean(each.rates[str(each.rate)])}" for each in few)
            notes.append(f"{TOO_FEW.capitalize()} for a ranking: {listed}.")
        return Table(
            name=f"{PREFIX}{name}", title=name, headings=["connection", *heading, "result"], rows=rows, notes=notes,
            bold=bold,
        )  # fmt: skip

    @property
    def _measure(self) -> str:
        return "error" if self.rules.reported == "error" else "loss"

    @property
    def _chosen_by(self) -> str:
        return self.rules.chosen_by.removeprefix("loss_").replace("_", " ").replace("valid ", "validation ")

    def _of_times(self, shown: Sequence[Family]) -> tuple[list[str], list[list[str]], list[str]]:
        """Headings, cells and notes of a table with equal updates and equal time."""
        updates, times = self.tests(equal_time=False), self.tests(equal_time=True)
        rates, digits, measure = len(self.rates) > 1, self.rules.decimals, self._measure
        rows = []
        for family in shown:
            mean, low, high = mean_interval(list(family.losses.values())) if family.losses else (None, None, None)
            low_to_high = "" if low is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
            time, of_connection = self.time(family), family in self.others
            rows.append(
                [
                    *([family.rate or "-"] if rates else []),
                    str(len(family.losses)),
                    "-" if mean is None else f"{mean:.{digits}f}{low_to_high}",
                    "-" if time is None else f"{time:.2f}",
                    *(str(test.get(family.connection, "-")) if of_connection else "-" for test in (updates, times)),
                ]
            )
        at_rate = f", at the rate that is better on the {self._chosen_by}" if self.has_several_rates else ""
        base, margin = self.baseline.connection, f"at least {self.rules.margin:g} " if self.rules.margin else ""
        note = (
            f"{measure.capitalize()}: {self.rules.meaning} [{CONFIDENCE:.0%} interval]{at_rate}. Time: training time "
            f"relative to {base}, from the times per update in costs.md. Differences from {base}: {_WELCH} A win is "
            f"significant and {margin}lower in both."
        )
        headings = [*(["rate"] if rates else []), "seeds", measure, "time", "at equal updates", "at equal time"]
        return headings, rows, [note]

    def _of_rates(self, shown: Sequence[Family]) -> tuple[list[str], list[list[str]], list[str]]:
        """Headings, cells and notes of a table with the mean at each learning rate."""
        tests = self.tests(equal_time=False)
        several, measure = self.has_several_rates, self._measure
        headings = [f"{measure}, {rate}" for rate in self.rates] if several else ["rate", measure]
        rows = []
        for each in shown:
            rates = self.rates if several else each.rates
            means = [self._mean(each.rates.get(rate, [])) for rate in rates]
            test = str(tests.get(each.connection, "-")) if each in self.others else "-"
            rows.append([*([] if several else rates), *means, str(len(each.losses)), test])
        bold = f" Bold: the rate that is best on the {self._chosen_by}." if several else ""
        each_at = ", each at its bold rate" if several else ""
        note = (
            f"{measure.capitalize()}: {self.rules.meaning}.{bold} Difference from {self.baseline.connection}{each_at}: "
            f"{_WELCH}"
        )
        return [*headings, "seeds", "difference"], rows, [note]

    def _mean(self, records: Sequence[Record]) -> str:
        if not records:
            return "-"
        metric = self.rules.reported
        if any(metric not in record.metrics for record in records):
            return "diverged"
        return f"{fmean(record.metrics[metric] for record in records):.{self.rules.decimals}f}"

    def times(self) -> Measurement:
        """One row per connection with a loss and a time: mean and interval."""
        rows: list[dict[str, Value]] = []
        for family in (self.baseline, *self.lengths, *self.others):
            time = self.time(family)
            if family.losses and time is not None:
                mean, low, high = mean_interval(list(family.losses.values()))
                is_baseline = family not in self.others
                group = "prenorm+ln, 2,000 to 6,000 updates" if is_baseline else "other connections, 2,000 updates"
                place: dict[str, Value] = {"model": self.title(family), "group": group, "time": time}
                rows.append({**place, "quantity": self.rules.reported, "value": mean, "lower": low, "upper": high})
        return Measurement(analysis="times", conditions={}, rows=rows)


def read_comparison(root: Path, results: Results, name: str) -> BaselineComparison:
    """The comparison of this name in `COMPARISONS`, from the project's recipes and records.

    :raises ValueError: a record was made with other settings than its variant has now.
    """
    rules, found = COMPARISONS[name], dict[str, list[Record]]()
    recipes = [each for each in results.recipes if any(fnmatchcase(each.address, run) for run in rules.runs)]
    by_address = {recipe.address: recipe for recipe in recipes}
    for record in results.records:
        if record.run in by_address and not record.overrides:
            by_address[record.run].check_record(record)
            found.setdefault(record.run, []).append(record)
    return BaselineComparison(rules, recipes, found, read_costs(root))
