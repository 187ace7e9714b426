"""Two processes do the updates that one does, by a recipe's own arithmetic."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import read_checkpoint
from rskip.settings.check import convert
from rskip.tasks.run import Run
from rskip.translation.recipe import TranslationSettings
from rskip.translation.training import training_of

pytestmark = pytest.mark.slow

SETTINGS = convert(
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
    },
    TranslationSettings,
)
ON_CPU = ["--cpu", "--distributed-backend", "gloo"]


def command_for(name: str, *, gpus: int) -> list[str]:
    return training_of(Run(name=name, seed=1, settings=SETTINGS, gpus=gpus)).command("float32")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, fairseq_program: Callable) -> Path:
    """A folder with data-bin/ of sentences of random words and their reversals, where one process has trained `one`."""
    pytest.importorskip("fairseq")
    folder, generator = tmp_path_factory.mktemp("project"), random.Random(1)
    for split, count in (("train", 300), ("valid", 20)):
        sentences = [[f"w{generator.randrange(20)}" for _ in range(generator.randint(2, 30))] for _ in range(count)]
        for language, step in (("en", 1), ("de", -1)):
            text = "".join(" ".join(sentence[::step]) + "\n" for sentence in sentences)
            (folder / f"{split}.{language}").write_text(text)
    process = fairseq_program(
        "fairseq-preprocess", "--source-lang", "en", "--target-lang", "de", "--joined-dictionary",
        "--trainpref", "train", "--validpref", "valid", "--destdir", "data-bin/numbers-en-de", folder=folder,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    command = command_for("one", gpus=0)
    assert command[-2:] == ["--update-freq", "4"]
    process = fairseq_program(*command, folder=folder)
    assert process.returncode == 0, process.stderr[-3000:]
    return folder


def test_two_processes_do_the_updates_of_one(project: Path, environment: Callable) -> None:
    """Each on a machine of its own: two agents of torchrun meet at an address (docs/recipes.md)."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    words = command_for("two", gpus=2)
    assert words[:4] == ["torchrun", "--standalone", "--nproc-per-node", "2"]
    assert words[-2:] == ["--update-freq", "2"]
    command = [
        str(Path(sys.executable).parent / "torchrun"), "--nnodes", "2", "--nproc-per-node", "1",
        "--rdzv-id", "test", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}",
        "--local-addr", "localhost", *words[4:], *ON_CPU,
    ]  # fmt: skip
    with (project / "log").open("w") as log:
        machines = [
            subprocess.Popen(command, cwd=project, env=environment(), stdout=log, stderr=subprocess.STDOUT)
            for _ in range(2)
        ]
        try:
            statuses = [machine.wait(timeout=300) for machine in machines]
        finally:
            for machine in machines:
                machine.kill()
    assert statuses == [0, 0], (project / "log").read_text()[-3000:]
    two, one = (project / f"runs/{name}/1/checkpoints/checkpoint_last.pt" for name in ("two", "one"))
    states = [torch.load(path, weights_only=True) for path in (two, one)]
    assert [state["optimizer_history"][-1]["num_updates"] for state in states] == [12, 12]
    ours, theirs = (read_checkpoint(path).model for path in (two, one))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
