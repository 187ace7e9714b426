"""The work of `rskip compare`: makes the subject of the model and the data that were named, and compares."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from rskip.cli._options import with_flags
from rskip.cli.main import termination_raises
from rskip.comparison.compare import compare_subject
from rskip.comparison.named import named_subject
from rskip.comparison.options import ModelOptions, Options
from rskip.comparison.running import Runs, describe, do_named_run, outcome
from rskip.comparison.subjects import Job, ShapedModel
from rskip.experiments.sweep import SweepJob, run_jobs
from rskip.files.names import line_name
from rskip.machine.ranks import Ranks
from rskip.machine.torch_errors import memory_as_mistake
from rskip.settings.errors import SettingError
from rskip.tasks.training import Interrupted, process_group


@memory_as_mistake(": give a smaller --batch-size, or another --device; the command resumes")
def run(args: argparse.Namespace) -> int:
    """Compares, or continues a comparison."""
    model, options = with_flags(ModelOptions(), args), with_flags(Options(), args)
    output = args.output or Path("runs", "compare", _slug(args.model, args.data))
    ranks = Ranks.from_environment()
    with process_group(ranks, args.device):
        with ranks.together():
            subject = named_subject(
                args.model, args.data, model, output=output, baseline=args.baseline, time=options, device=args.device,
                connections=len(args.connections or ShapedModel.recommended),
            )  # fmt: skip
        try:
            if args.only is not None:
                do_named_run(subject, args.only, output, device=args.device, tracker=args.tracker)
                return 0
            comparison = compare_subject(
                subject, args.connections, options=options, rates=args.rates, output=output, device=args.device,
                tracker=args.tracker, command=_command(),
                work=None if args.ray is None else partial(_on_ray, address=args.ray),
            )  # fmt: skip
        except Interrupted as error:
            print(f"rskip compare: {error}", file=sys.stderr)
            return error.status
    if ranks.first:
        print(f"\n{comparison}")
        if args.html is not None:
            comparison.html(args.html)
            print(f"page: {line_name(args.html)}")
    return 0


def _command() -> list[str]:
    """The words of this command, which repeat it."""
    return ["rskip", *sys.argv[1:]]


def _slug(model: str, data: str) -> str:
    names = (model.rpartition(":")[2] if ":" in model else model, data)
    return "-".join(Path(name.rstrip("/")).name.partition(".")[0] or "x" for name in names)


def _on_ray(runs: Runs, *, address: str) -> None:
    """Has Ray do the missing runs: the pilots, then those that are compared."""
    if Ranks.from_environment().count > 1:
        raise SettingError("ray", "is given under torchrun", expected="one of the two")
    words = [*sys.argv[1:], "--output", str(runs.output)]  # the last of a flag counts, and --only before --ray
    for stage in runs.stages():
        jobs = [
            SweepJob(
                name=describe(job),
                folder=runs.folder(job),
                log=runs.folder(job).with_suffix(".log"),
                words=partial(_words, [*words, "--only", str(runs.path(job))]),
                result=partial(_result, runs, job),
            )
            for job in stage
        ]
        with termination_raises():
            failures = run_jobs(jobs, address=address)
        if failures:
            raise SettingError("", f"{len(failures)} runs failed: {failures[0]}", advice="repeat the command")


def _words(words: list[str], gpus: int) -> list[str]:
    return [*words, *(["--device", "cpu"] if gpus == 0 else [])]


def _result(runs: Runs, job: Job) -> str:
    return outcome(runs.read(job))
