"""The command lines that a translation run consists of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rskip.corpora import PrepareOptions, find_corpus
from rskip.corpora.options import command_line_flags
from rskip.corpora.record import shard_folders
from rskip.experiments.process import executable
from rskip.experiments.tokens_per_update import KEY, plan_batches
from rskip.experiments.training_precision import LOW_PRECISION
from rskip.experiments.translation_settings import Flag, TranslationSettings

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


def prepare_command(settings: TranslationSettings, *, data: Path, mirror: str | None) -> list[str]:
    """`rskip prepare`, which makes the data folder."""
    flags = command_line_flags(PrepareOptions(**settings.prepare))  # type: ignore[arg-type]
    return [
        "rskip",
        *("prepare", settings.corpus, "--output", str(data)),
        *flags_to_arguments({**flags, "mirror": mirror}),
    ]


def train_command(
    settings: TranslationSettings,
    *,
    data: Path,
    checkpoints: Path,
    seed: int,
    gpus: int,
    precision: str | None = None,
) -> list[str]:
    """`fairseq-train`, under `torchrun` for several GPUs; it resumes by itself from `checkpoint_last.pt`.

    :param gpus: how many, all of this machine; 0 for the CPU.
    :param precision: "float32" trains in it whatever the recipe's flags ask for.
    :raises ValueError: an update can't be divided among so many (`rskip.experiments.tokens_per_update`).
    """
    flags = {name: value for name, value in settings.train.items() if name != KEY}
    if (batches := plan_batches(settings.train, gpus=gpus)) is not None:
        flags |= {"max-tokens": batches.max_tokens, "update-freq": batches.update_freq}
    if precision == "float32":
        flags |= dict.fromkeys(flags.keys() & LOW_PRECISION, False)
    program = ["fairseq-train"]
    if gpus > 1:
        program = ["torchrun", "--standalone", "--nproc-per-node", str(gpus), executable("fairseq-train")]
    return [
        *program,
        _fairseq_data(settings, data),
        *_languages(settings),
        *("--user-dir", "rskip", "--seed", str(seed), "--save-dir", str(checkpoints)),
        *_kept_checkpoints(settings),
        *("--log-format", "json"),
        *([] if "log-interval" in settings.train else ["--log-interval", str(_LOG_INTERVAL)]),
        *([] if gpus > 1 else _one_device(gpu=gpus > 0)),
        *flags_to_arguments(flags),
    ]


def average_command(settings: TranslationSettings, *, checkpoints: Path, output: Path) -> list[str]:
    """`rskip average`, over the last checkpoints."""
    return [
        "rskip",
        "average",
        *("--last", str(settings.average.last)),
        *(["--by", "update"] if settings.averages_by == "update" else []),
        str(checkpoints),
        *("--output", str(output)),
    ]


def generate_command(settings: TranslationSettings, *, data: Path, checkpoint: Path, gpu: bool) -> list[str]:
    """`fairseq-generate` on the split that the recipe evaluates; it prints the hypotheses."""
    return [
        "fairseq-generate",
        _fairseq_data(settings, data),
        *_languages(settings),
        *("--user-dir", "rskip", "--path", str(checkpoint), "--gen-subset", settings.evaluate.split),
        *_one_device(gpu=gpu),
        *flags_to_arguments(settings.generate),
    ]


def _fairseq_data(settings: TranslationSettings, folder: Path) -> str:
    """The folder, or its shards joined by colons, of which fairseq reads one an epoch."""
    return ":".join(map(str, shard_folders(folder, int(settings.prepare.get("shards", 1)))))


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
