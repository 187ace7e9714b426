"""The commands of a translation run: it trains with fairseq-train, and averages the last checkpoints.

Every stage writes its output atomically, and completed stages are not repeated, so a stopped run can be resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rskip.checkpoint import final_checkpoints
from rskip.checkpoint.average import average_to_file
from rskip.corpora.options import command_line_flags
from rskip.tasks.fairseq.flags import FairseqFlags, check_fairseq_flags, device_arguments, flags_to_arguments
from rskip.tasks.fairseq.training import FairseqTraining
from rskip.tasks.process import executable
from rskip.tasks.run import Run, precision_here
from rskip.translation.batches import plan_batches
from rskip.translation.data import data_arguments, data_folder, ensure_data
from rskip.translation.recipe import NOT_FAIRSEQS, TranslationSettings


def train(run: Run[TranslationSettings]) -> None:
    """Prepares the data, trains to the end with fairseq-train, and averages the last checkpoints."""
    settings = run.settings
    executable("fairseq-train")  # before the data are prepared
    ensure_data(settings, mirror=run.mirror)
    print(f"{run.name}, seed {run.seed}", flush=True)
    training = training_of(run)
    if not training.done and (batches := plan_batches(settings.train, gpus=run.gpus)):
        print(batches, flush=True)
    training.complete()
    if not scored_file(run).exists():
        asked = settings.average.last
        last = final_checkpoints(training.checkpoints, asked, by=settings.averages_by)
        if len(last) < asked:
            print(f"training ended early: averaging {len(last)} instead of {asked} checkpoints", flush=True)
        average_to_file(last, scored_file(run))


def training_of(run: Run[TranslationSettings]) -> FairseqTraining:
    """The run's training."""
    settings = run.settings
    flags = {name: value for name, value in settings.train.items() if name not in NOT_FAIRSEQS}
    if (batches := plan_batches(settings.train, gpus=run.gpus)) is not None:
        flags |= {"max-tokens": batches.max_tokens, "update-freq": batches.update_freq}
    last = str(settings.average.last)
    by_update = ["--keep-interval-updates", last, "--no-epoch-checkpoints"]
    return FairseqTraining(
        run=run,
        data=data_arguments(settings),
        flags=flags,
        options=by_update if settings.averages_by == "update" else ["--keep-last-epochs", last],
        checkpoints=run.folder.path / "checkpoints",
        finished=run.folder.path / "trained",
    )


def check(runs: Sequence[Run[TranslationSettings]]) -> None:
    """:raises ValueError: an update can't be divided among the GPUs, or fairseq refuses a flag."""
    for run in runs:
        plan_batches(run.settings.train, gpus=run.gpus)
    settings = {run.name: run.settings for run in runs}
    check_fairseq_flags([flags for name, each in settings.items() for flags in fairseq_flags(each, source=name)])


def fairseq_flags(settings: TranslationSettings, *, source: str = "") -> list[FairseqFlags]:
    """The flags of fairseq's programs, for `check_fairseq_flags`."""
    data = data_arguments(settings)
    train = {name: value for name, value in settings.train.items() if name not in NOT_FAIRSEQS}
    generate = [*data, "--path", "x"]
    return [
        FairseqFlags(section="train", program="fairseq-train", before=data, flags=train, source=source),
        FairseqFlags(
            section="generate", program="fairseq-generate", before=generate, flags=settings.generate, source=source
        ),
    ]


def scored_file(run: Run[TranslationSettings]) -> Path:
    """The averaged checkpoint, which is scored."""
    return run.folder.path / "averaged.pt"


def artifacts(run: Run[TranslationSettings]) -> dict[str, str]:
    """Files of a run for the user."""
    return {
        str(run.folder.train_log): "output of fairseq-train",
        str(scored_file(run)): "the averaged model, for fairseq-generate and fairseq-interactive",
    }


def commands(run: Run[TranslationSettings]) -> list[list[str]]:
    """The commands to prepare, train, average and translate."""
    training = training_of(run)
    training_commands = training.commands(precision_here(training.precision, gpus=run.gpus))
    preparing = [_prepare_command(run)] if run.settings.data is None else []
    return [*preparing, *training_commands, average_command(run), generate_command(run, checkpoint=scored_file(run))]


def _prepare_command(run: Run[TranslationSettings]) -> list[str]:
    settings = run.settings
    flags = {**command_line_flags(settings.prepare), "mirror": run.mirror}
    return ["rskip", "prepare", settings.corpus, "--output", str(data_folder(settings)), *flags_to_arguments(flags)]


def average_command(run: Run[TranslationSettings]) -> list[str]:
    """The command `rskip average` for the last checkpoints."""
    by = ["--by", "update"] if run.settings.averages_by == "update" else []
    checkpoints = [str(training_of(run).checkpoints), "--output", str(scored_file(run))]
    return ["rskip", "average", "--last", str(run.settings.average.last), *by, *checkpoints]


def generate_command(run: Run[TranslationSettings], *, checkpoint: Path) -> list[str]:
    """The command `fairseq-generate` for the evaluated split, which prints the hypotheses."""
    settings = run.settings
    return [
        "fairseq-generate",
        *data_arguments(settings),
        *("--path", str(checkpoint), "--gen-subset", settings.evaluate.split),
        *device_arguments(gpu=run.gpus > 0),
        *flags_to_arguments(settings.generate),
    ]
