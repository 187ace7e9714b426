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


@pytest.fixture
def tiny() -> list[str]:
    """Flags of fairseq-train for a model and a schedule that take seconds."""
    return TINY + SCHEDULE


@pytest.fixture
def train(reversed_words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict]:
    """Runs fairseq-train here with the tiny sizes; returns the last checkpoint's parameters."""

    def run(name: str, *flags: str) -> dict:
        from fairseq_cli.train import cli_main

        from rskip.checkpoint import read_checkpoint

        folder = tmp_path / name
        monkeypatch.setattr(
            sys, "argv",
            ["fairseq-train", str(reversed_words / "bin"), "--user-dir", "rskip", "--save-dir", str(folder)]
            + TINY + SCHEDULE + list(flags),
        )  # fmt: skip
        cli_main()
        return read_checkpoint(folder / "checkpoint_last.pt").model

    return run


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
