"""fairseq's programs in this process, on a tiny corpus."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("fairseq", reason="needs fairseq: run `rskip setup-fairseq`")

TINY = [
    "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32", "--encoder-attention-heads", "2",
    "--decoder-attention-heads", "2", "--encoder-layers", "2", "--decoder-layers", "2", "--share-all-embeddings",
]  # fmt: skip
SCHEDULE = [
    "--optimizer", "adam", "--lr", "5e-3", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "10",
    "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--max-tokens", "200",
    "--cpu", "--seed", "3", "--num-workers", "0", "--log-format", "simple",
]  # fmt: skip


@pytest.fixture(scope="session")
def train_command(reversed_words: Path) -> Callable[..., list[str]]:
    """The words of a fairseq-train of a model and a schedule that take seconds."""

    def command(folder: Path, *flags: str) -> list[str]:
        data = [str(reversed_words / "bin"), "--user-dir", "rskip", "--save-dir", str(folder)]
        return ["fairseq-train", *data, *TINY, *SCHEDULE, "--no-epoch-checkpoints", *flags]

    return command


@pytest.fixture(scope="session")
def train(train_command: Callable[..., list[str]]) -> Callable[..., dict]:
    """Runs fairseq-train here; returns the last checkpoint's parameters."""

    def run(folder: Path, *flags: str) -> dict:
        from fairseq_cli.train import cli_main

        from rskip.checkpoint import read_checkpoint

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", train_command(folder, *flags))
            cli_main()
        return read_checkpoint(folder / "checkpoint_last.pt").model

    return run


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Runs fairseq-generate here, by a task on a folder's data; its lines, without the log's."""

    def generate(task: str, data: Path, path: str, *flags: str) -> list[str]:
        from fairseq_cli.generate import cli_main

        common = ["--user-dir", "rskip", "--task", task, "--path", path, "--cpu", "--num-workers", "0"]
        monkeypatch.setattr(sys, "argv", ["fairseq-generate", str(data), *common, *flags])
        cli_main()
        return [line for line in capsys.readouterr().out.splitlines() if " | INFO | " not in line]

    return generate


@pytest.fixture
def task() -> SimpleNamespace:
    """What `build_model` reads of a fairseq task: two equal dictionaries of 20 symbols."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for index in range(16):
        dictionary.add_symbol(f"word{index}")
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


@pytest.fixture
def parse() -> Callable[..., SimpleNamespace]:
    """Parses flags as fairseq-train does."""

    def run(*flags: str):
        from fairseq import options

        import rskip.fairseq_plugin  # noqa: F401

        parser = options.get_training_parser()
        return options.parse_args_and_arch(parser, ["data-bin", *flags])

    return run
