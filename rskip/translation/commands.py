"""The commands that a translation run stands for: prepare, initialise, train, average, translate."""

from __future__ import annotations

from pathlib import Path

from rskip.corpora.options import command_line_flags
from rskip.tasks.fairseq.flags import FairseqFlags, device_arguments, flags_to_arguments
from rskip.tasks.run import Run, precision_here
from rskip.translation.data import data_arguments, data_folder
from rskip.translation.recipe import NOT_FAIRSEQS, TranslationSettings
from rskip.translation.training import scored_file, training_of


def commands(run: Run[TranslationSettings]) -> list[list[str]]:
    """See `Task.commands`."""
    training = training_of(run)
    precision = precision_here(training.precision, gpus=run.gpus)
    training_commands = training.commands(precision)
    scoring = generate_command(run, checkpoint=scored_file(run))
    return [prepare_command(run), *training_commands, average_command(run), scoring]


def prepare_command(run: Run[TranslationSettings]) -> list[str]:
    """`rskip prepare`, which makes the data folder."""
    settings = run.settings
    flags = {**command_line_flags(settings.prepare), "mirror": run.mirror}
    return ["rskip", "prepare", settings.corpus, "--output", str(data_folder(settings)), *flags_to_arguments(flags)]


def average_command(run: Run[TranslationSettings]) -> list[str]:
    """`rskip average`, over the last checkpoints."""
    return [
        "rskip",
        "average",
        *("--last", str(run.settings.average.last)),
        *(["--by", "update"] if run.settings.averages_by == "update" else []),
        str(training_of(run).checkpoints),
        *("--output", str(scored_file(run))),
    ]


def generate_command(run: Run[TranslationSettings], *, checkpoint: Path) -> list[str]:
    """`fairseq-generate` on the split that the recipe evaluates; it prints the hypotheses."""
    settings = run.settings
    return [
        "fairseq-generate",
        *data_arguments(settings),
        *("--path", str(checkpoint), "--gen-subset", settings.evaluate.split),
        *device_arguments(gpu=run.gpus > 0),
        *flags_to_arguments(settings.generate),
    ]


def fairseq_flags(settings: TranslationSettings) -> list[FairseqFlags]:
    """See `Task.fairseq_flags`."""
    data = data_arguments(settings)
    train = {name: value for name, value in settings.train.items() if name not in NOT_FAIRSEQS}
    generate = [*data, "--path", "x"]
    return [
        FairseqFlags(section="train", program="fairseq-train", before=data, flags=train),
        FairseqFlags(section="generate", program="fairseq-generate", before=generate, flags=settings.generate),
    ]
