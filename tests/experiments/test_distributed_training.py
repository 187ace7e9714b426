"""Several processes do the updates that one does, on one machine and on two, by a recipe's own arithmetic."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rskip.experiments.commands import train_command
from rskip.experiments.process import run_logged
from rskip.experiments.tokens_per_update import plan_batches
from rskip.experiments.translation_settings import TranslationSettings

from rskip.checkpoint import read_checkpoint

pytestmark = pytest.mark.slow

SETTINGS = TranslationSettings.from_mapping(
    {
        "corpus": "numbers-en-de",
        "train": {
            "arch": "transformer_rskip_ln_tiny",
            **{"encoder-embed-dim": 16, "encoder-ffn-embed-dim": 32, "encoder-layers": 2, "decoder-layers": 2},
            **{"encoder-attention-heads": 2, "decoder-attention-heads": 2, "share-all-embeddings": True},
            # k_proj.bias has no effect on a softmax: Adam's usual epsilon would blow up its gradient's rounding noise
            **{"optimizer": "adam", "adam-eps": 1e-4, "lr": 5e-3, "lr-scheduler": "inverse_sqrt", "warmup-updates": 5},
            **{"criterion": "rskip_label_smoothed_cross_entropy", "label-smoothing": 0.1, "dropout": 0.0},
            **{"tokens-per-update": 400, "max-tokens": 100, "max-source-positions": 50, "max-target-positions": 50},
            **{"max-update": 12, "num-workers": 0},
        },
    }
)
ON_CPU = ["--cpu", "--distributed-backend", "gloo"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, fairseq_program: Callable) -> Path:
    """A data folder of sentences of random words and their reversals."""
    pytest.importorskip("fairseq")
    folder, generator = tmp_path_factory.mktemp("reversed"), random.Random(1)
    for split, count in (("train", 300), ("valid", 20)):
        sentences = [[f"w{generator.randrange(20)}" for _ in range(generator.randint(2, 30))] for _ in range(count)]
        for language, step in (("en", 1), ("de", -1)):
            text = "".join(" ".join(sentence[::step]) + "\n" for sentence in sentences)
            (folder / f"{split}.{language}").write_text(text)
    process = fairseq_program(
        "fairseq-preprocess", "--source-lang", "en", "--target-lang", "de", "--joined-dictionary",
        "--trainpref", "train", "--validpref", "valid", "--destdir", "bin", folder=folder,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def by_one_process(data: Path, tmp_path_factory: pytest.TempPathFactory, fairseq_program: Callable) -> Path:
    """The last checkpoint of one process."""
    folder = tmp_path_factory.mktemp("one")
    command = train_command(SETTINGS, data=data, checkpoints=folder, seed=1, gpus=0)
    assert command[-2:] == ["--update-freq", "4"]
    process = fairseq_program(*command, folder=folder)
    assert process.returncode == 0, process.stderr[-3000:]
    return folder / "checkpoint_last.pt"


@pytest.fixture
def by_two_processes(data: Path, tmp_path: Path) -> list[str]:
    """The command for two GPUs, on two CPU processes instead; checkpoints go to the folder `two`."""
    command = train_command(SETTINGS, data=data, checkpoints=tmp_path / "two", seed=1, gpus=2)
    assert command[:4] == ["torchrun", "--standalone", "--nproc-per-node", "2"]
    assert command[-2:] == ["--update-freq", "2"]
    return [str(Path(sys.executable).parent / "torchrun"), *command[1:], *ON_CPU]


def assert_same_training(path: Path, expected: Path) -> None:
    states = [torch.load(each, weights_only=True) for each in (path, expected)]
    assert [state["optimizer_history"][-1]["num_updates"] for state in states] == [12, 12]
    ours, theirs = (read_checkpoint(each).model for each in (path, expected))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_two_processes_do_the_updates_of_one(
    by_two_processes: list[str], by_one_process: Path, environment: Callable, tmp_path: Path
) -> None:
    process = subprocess.run(by_two_processes, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    assert_same_training(tmp_path / "two" / "checkpoint_last.pt", by_one_process)


def test_two_machines_do_the_updates_of_one(
    by_two_processes: list[str], by_one_process: Path, environment: Callable, tmp_path: Path
) -> None:
    """Two agents of torchrun meet at an address, as on two machines (docs/recipes.md)."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    command = [
        by_two_processes[0], "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "test", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", f"localhost:{port}", "--local-addr", "localhost", *by_two_processes[4:],
    ]  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        machines = [
            subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=log, stderr=subprocess.STDOUT)
            for _ in range(2)
        ]
        try:
            statuses = [machine.wait(timeout=300) for machine in machines]
        finally:
            for machine in machines:
                machine.kill()
    assert statuses == [0, 0], (tmp_path / "log").read_text()[-3000:]
    assert_same_training(tmp_path / "two" / "checkpoint_last.pt", by_one_process)


def test_without_the_division_the_updates_would_be_others(
    by_one_process: Path, data: Path, environment: Callable, by_two_processes: list[str], tmp_path: Path
) -> None:
    command = [*by_two_processes, "--update-freq", "4"]  # as one process, but on two
    process = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    with pytest.raises(AssertionError):
        assert_same_training(tmp_path / "two" / "checkpoint_last.pt", by_one_process)


def test_a_flag_that_fairseq_refuses_is_one_line_under_torchrun_too(
    by_two_processes: list[str], environment: Callable, tmp_path: Path
) -> None:
    command = ["torchrun", *by_two_processes[1:], "--no-such-flag"]
    with pytest.raises(ValueError) as error:
        run_logged(command, log=tmp_path / "log", environment=environment())
    assert "unrecognized arguments: --no-such-flag" in str(error.value) and "\n" not in str(error.value)


def test_the_two_ways_have_the_same_batches() -> None:
    one, two = (plan_batches(SETTINGS.train, gpus=gpus) for gpus in (1, 2))
    assert one is not None and two is not None
    assert one.max_tokens == two.max_tokens and one.tokens == two.tokens == 400
