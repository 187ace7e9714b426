"""Lists the commands of a translation run: prepare, initialise, train, average, translate."""

from __future__ import annotations

from rskip.corpora.options import command_line_flags
from rskip.tasks.fairseq.flags import flags_to_arguments
from rskip.tasks.run import Run, precision_here
from rskip.translation.data import data_folder
from rskip.translation.recipe import TranslationSettings
from rskip.translation.scoring import generate_command
from rskip.translation.training import scored_file, training_of


def commands(run: Run[TranslationSettings]) -> list[list[str]]:
    """See `Task.commands`."""
    training = training_of(run)
    precision = precision_here(training.precision, gpus=run.gpus)
    training_commands = training.commands(precision)
    scoring = generate_command(run, checkpoint=scored_file(run))
    preparing = [prepare_command(run)] if run.settings.data is None else []
    return [*preparing, *training_commands, average_command(run), scoring]


def prepare_command(run: Run[TranslationSettings]) -> list[str]:
    """The command `rskip prepare`, which makes the data folder."""
    settings = run.settings
    flags = {**command_line_flags(settings.prepare), "mirror": run.mirror}
    return ["rskip", "prepare", settings.corpus, "--output", str(data_folder(settings)), *flags_to_arguments(flags)]


def average_command(run: Run[TranslationSettings]) -> list[str]:
    """The command `rskip average` for the last checkpoints."""
    return [
        "rskip",
        "average",
        *("--last", str(run.settings.average.last)),
        *(["--by", "update"] if run.settings.averages_by == "update" else []),
        str(training_of(run).checkpoints),
        *("--output", str(scored_file(run))),
    ]
