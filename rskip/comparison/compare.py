"""`rskip.compare`, and what the command shares with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from rskip.comparison.batches import OwnBatches
from rskip.comparison.options import Options
from rskip.comparison.plan import make_plan
from rskip.comparison.result import Comparison
from rskip.comparison.running import Runs, do_runs
from rskip.comparison.subjects import AdaptedModel, Loss, Subject, model_loss
from rskip.machine.ranks import Ranks
from rskip.records.statistics import scipy
from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Positive
from rskip.tasks.training import process_group
from rskip.tasks.training_folder import Tracker


def compare(
    build: Callable[[], nn.Module],
    data: Any,
    connections: Sequence[str] | None = None,
    *,
    valid: Any = None,
    loss: Loss | None = None,
    output: str | Path = "runs/compare",
    minutes: float = 60.0,
    updates: int | None = None,
    seeds: int = 3,
    rates: Sequence[float] | None = None,
    blocks: str | None = None,
    device: str | None = None,
) -> Comparison:
    """Trains your model with several connections, and compares their held-out losses.

    Each connection trains for the same number of updates: at each learning rate with one seed, then at the better rate
    with `seeds` other seeds. The model's own connection also trains for the time of the slowest one. Runs that ended
    are kept in `output`: the same call continues a comparison, and more seeds or rates, or other connections,
    extend it; `connections` are those in the table.

    :param build: returns the model, with random weights.
    :param data: batches: any iterable, read once into memory, or a sequence; at each call the same, in the same order.
        Each is a pair (inputs, targets), or a mapping of the model's arguments.
    :param connections: specs for `rskip.adapt`; None: those that are worth a try in most models.
    :param valid: held-out batches; None: every tenth batch of `data`.
    :param loss: `loss(model, batch)` is the mean loss of a batch; None: the one that the model computes, else the
        cross-entropy of its outputs (`rskip.comparison.subjects.model_loss`).
    :param output: folder of the comparison.
    :param minutes: time for all runs; it decides the number of updates, unless `updates` is given.
    :param seeds: seeds per connection, 2 or more.
    :param rates: learning rates; None: 3e-4 and 1e-3.
    :param blocks: see `rskip.adapt`.
    :param device: "cpu", "cuda" or "cuda:1"; None: a GPU if available.
    :raises SettingError: an argument is wrong, `adapt` refuses the model, or the time is too short.
    :raises Interrupted: SIGTERM or SIGINT stopped a run, which was saved.
    """
    if not callable(build):
        raise SettingError("build", f"is a {type(build).__name__}", expected="a function that returns a model")
    subject = AdaptedModel(
        name=getattr(build, "__name__", type(build).__name__),
        build=build,
        data=OwnBatches.of(data, valid),
        loss=loss or model_loss,
        blocks=blocks,
    )
    options = Options(minutes=minutes, updates=updates, seeds=seeds)
    return compare_subject(subject, connections, options=options, rates=rates, output=Path(output), device=device)


def compare_subject(
    subject: Subject,
    connections: Sequence[str] | None,
    *,
    options: Options,
    rates: Sequence[float] | None,
    output: Path,
    device: str | None,
    tracker: Tracker | None = None,
    command: Sequence[str] = (),
    work: Callable[[Runs], None] | None = None,
) -> Comparison:
    """Plans the runs, does those that are missing, and returns the comparison.

    :param rates: learning rates; None: the subject's.
    :param command: the words that repeat the comparison, for its advice.
    :param work: does the missing runs; None: here, one after the other.
    """
    scipy("stats")  # which the first table needs
    checked: Any = list[Positive]
    chosen = subject.rates if rates is None else convert(list(rates), checked, name="rates")
    if not chosen:
        raise SettingError("rates", "is empty", expected="one learning rate or more")
    with process_group(Ranks.from_environment(), device):
        plan = make_plan(
            subject, connections, options=options, rates=chosen, output=output, device=device, command=command
        )
        runs = Runs(plan=plan, output=output)
        if work is None:
            show = lambda: print(f"\n{Comparison(runs).short()}", flush=True)  # noqa: E731
            do_runs(subject, runs, device=device, tracker=tracker, after=show)
        else:
            work(runs)
    return Comparison(runs)
