"""The command lines that a translation run consists of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rskip.corpora import find_corpus
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
    flag_of = {"subwords": "subword", "size": "bpe-size", "pairs": "pairs", "seed": "seed"}
    flags = {flag_of[option]: value for option, value in settings.prepare.items()}
    return [
        "rskip",
        *("prepare", settings.corpus, "--output", str(data)),
        *flags_to_arguments({**flags, "mirror": mirror}),
    ]


def train_command(
    settings: TranslationSettings, *, data: Path, checkpoints: Path, seed: int, gpu: bool
) -> list[str]:
    """`fairseq-train`; it resumes by itself from `checkpoint_last.pt` in `checkpoints`."""
    return [
        "fairseq-train",
        str(data),
        *_languages(settings),
        *("--user-dir", "rskip", "--seed", str(seed), "--save-dir", str(checkpoints)),
        *("--keep-last-epochs", str(settings.average.last)),
        *("--log-format", "json"),
        *([] if "log-interval" in settings.train else ["--log-interval", str(_LOG_INTERVAL)]),
        *([] if gpu else ["--cpu"]),
        *flags_to_arguments(settings.train),
    ]


def average_command(settings: TranslationSettings, *, checkpoints: Path, output: Path) -> list[str]:
    """`rskip average`, over the last epochs' checkpoints."""
    return [
        "rskip",
        "average",
        "--last",
        str(settings.average.last),
        str(checkpoints),
        "--output",
        str(output),
    ]


def generate_command(settings: TranslationSettings, *, data: Path, checkpoint: Path, gpu: bool) -> list[str]:
    """`fairseq-generate` on the split that the recipe evaluates; it prints the hypotheses."""
    return [
        "fairseq-generate",
        str(data),
        *_languages(settings),
        *("--user-dir", "rskip", "--path", str(checkpoint), "--gen-subset", settings.evaluate.split),
        *([] if gpu else ["--cpu"]),
        *flags_to_arguments(settings.generate),
    ]


def _languages(settings: TranslationSettings) -> list[str]:
    """fairseq could guess them from the data folder, but would then not write them into its checkpoints."""
    corpus = find_corpus(settings.corpus)
    return ["--source-lang", corpus.source, "--target-lang", corpus.target]
