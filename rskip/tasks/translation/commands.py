"""The command lines that a translation run consists of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rskip.corpora import find_corpus
from rskip.corpora.options import command_line_flags
from rskip.corpora.record import shard_folders
from rskip.tasks.process import executable
from rskip.tasks.run import Run, precision_here
from rskip.tasks.translation.batches import KEY, plan_batches
from rskip.tasks.translation.data import data_folder
from rskip.tasks.translation.settings import Flag, TranslationSettings

LOW_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "amp": "float16"}  # fairseq-train's flags
_LOG_INTERVAL = 100  # updates between two lines in train.log


def flags_to_arguments(flags: Mapping[str, Flag]) -> list[str]:
    """`{"lr": 0.005, "bf16": True, "fp16": False}` -> `["--lr", "0.005", "--bf16"]`."""
    arguments = []
    for name, value in flags.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not None and value is not False:
            # "=" keeps a value that begins with a dash from being read as a flag
            arguments += [f"--{name}={value}"] if str(value).startswith("-") else [f"--{name}", str(value)]
    return arguments


def commands(run: Run[TranslationSettings]) -> list[list[str]]:
    """The commands that a run stands for: prepare, train, average, translate."""
    asked = recipe_precision(run.settings.train)
    return [
        prepare_command(run),
        train_command(run, precision=precision_here(asked, gpus=run.gpus)),
        average_command(run),
        generate_command(run, checkpoint=averaged(run)),
    ]


def prepare_command(run: Run[TranslationSettings]) -> list[str]:
    """`rskip prepare`, which makes the data folder."""
    settings = run.settings
    flags = command_line_flags(settings.prepare)
    return [
        "rskip",
        *("prepare", settings.corpus, "--output", str(data_folder(settings))),
        *flags_to_arguments({**flags, "mirror": run.mirror}),
    ]


def train_command(run: Run[TranslationSettings], *, precision: str) -> list[str]:
    """`fairseq-train`, under `torchrun` for several GPUs; it resumes by itself from `checkpoint_last.pt`.

    :param precision: "float32" trains in it whatever the recipe's flags ask for.
    :raises ValueError: an update can't be divided among so many (`rskip.tasks.translation.batches`).
    """
    settings, gpus = run.settings, run.gpus
    flags = {name: value for name, value in settings.train.items() if name not in (KEY, "user-dir")}
    if (batches := plan_batches(settings.train, gpus=gpus)) is not None:
        flags |= {"max-tokens": batches.max_tokens, "update-freq": batches.update_freq}
    if precision == "float32":
        flags |= dict.fromkeys(flags.keys() & LOW_PRECISION, False)
    program = ["fairseq-train"]
    if gpus > 1:
        program = ["torchrun", "--standalone", "--nproc-per-node", str(gpus), executable("fairseq-train")]
    return [
        *program,
        _fairseq_data(settings),
        *_languages(settings),
        *("--user-dir", settings.user_dir, "--seed", str(run.seed), "--save-dir", str(checkpoints(run))),
        *_kept_checkpoints(settings),
        *("--log-format", "json"),
        *([] if "log-interval" in settings.train else ["--log-interval", str(_LOG_INTERVAL)]),
        *([] if gpus > 1 else _one_device(gpu=gpus > 0)),
        *flags_to_arguments(flags),
    ]


def average_command(run: Run[TranslationSettings]) -> list[str]:
    """`rskip average`, over the last checkpoints."""
    return [
        "rskip",
        "average",
        *("--last", str(run.settings.average.last)),
        *(["--by", "update"] if run.settings.averages_by == "update" else []),
        str(checkpoints(run)),
        *("--output", str(averaged(run))),
    ]


def generate_command(run: Run[TranslationSettings], *, checkpoint: Path) -> list[str]:
    """`fairseq-generate` on the split that the recipe evaluates; it prints the hypotheses."""
    settings = run.settings
    return [
        "fairseq-generate",
        _fairseq_data(settings),
        *_languages(settings),
        *("--user-dir", settings.user_dir, "--path", str(checkpoint), "--gen-subset", settings.evaluate.split),
        *_one_device(gpu=run.gpus > 0),
        *flags_to_arguments(settings.generate),
    ]


def checkpoints(run: Run[TranslationSettings]) -> Path:
    """The folder of fairseq's checkpoints."""
    return run.folder.path / "checkpoints"


def averaged(run: Run[TranslationSettings]) -> Path:
    """The averaged checkpoint, which is scored."""
    return run.folder.path / "averaged.pt"


def recipe_precision(train: Mapping[str, Flag]) -> str:
    """What the flags of fairseq-train ask for: "float32", "bfloat16" or "float16"."""
    return next((name for flag, name in LOW_PRECISION.items() if train.get(flag)), "float32")


def _fairseq_data(settings: TranslationSettings) -> str:
    """The data folder, or its shards joined by colons, of which fairseq reads one an epoch."""
    return ":".join(map(str, shard_folders(data_folder(settings), settings.prepare.shards)))


def _kept_checkpoints(settings: TranslationSettings) -> list[str]:
    last = str(settings.average.last)
    if settings.averages_by == "update":
        return ["--keep-interval-updates", last, "--no-epoch-checkpoints"]
    return ["--keep-last-epochs", last]


def _one_device(*, gpu: bool) -> list[str]:
    """The CPU, or one GPU: fairseq would take all that it sees, and fairseq-generate translate one GPU's part."""
    return ["--distributed-world-size", "1"] if gpu else ["--cpu"]


def _languages(settings: TranslationSettings) -> list[str]:
    """fairseq could guess them from the data folder, but would then not write them into its checkpoints."""
    corpus = find_corpus(settings.corpus)
    return ["--source-lang", corpus.source, "--target-lang", corpus.target]
