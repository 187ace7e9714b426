"""A small model of your own with its batches, and a plan with made-up runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rskip.comparison.plan import Measured, Plan
from rskip.comparison.running import Runs
from rskip.comparison.subjects import Job
from rskip.records import Record

MODEL = '''
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


class Model(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab_size, 8), nn.Linear(8, vocab_size)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(vocab_size=11):
    return Model(vocab_size)


def batches():
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(11, (40, 4, 7), generator=generator)
    return [(each[:, :-1], each[:, 1:] // 2) for each in tokens]


def wrong_loss(model, batch):
    return model(batch[0])


def not_finite(model, batch):
    return model(batch[0]).sum() * float("nan")


def number():
    return 3
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, which becomes the current one, with the module own_model."""
    name = f"own_model_{os.getpid()}_{abs(hash(tmp_path)) % 10**8}"  # modules of other tests stay imported
    (tmp_path / f"{name}.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return Path(name)


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., Runs]:
    """Makes a comparison whose runs have these losses: `planned(connection=(seconds, losses), ...)`."""

    def make(losses: Mapping[str, tuple[float, list[float]]], longer: list[float] | None = None) -> Runs:
        names = list(losses)
        plan = Plan(
            name="made up", identity={}, command=["rskip", "compare", "gpt2", "--seeds", "3", "--minutes", "1"],
            baseline=names[0], connections=names[1:], rates=[0.1], seeds=len(losses[names[0]][1]), updates=100,
            measured={
                name: Measured(seconds=seconds, kept_megabytes=1.0, parameters=10)
                for name, (seconds, _) in losses.items()
            },
            evaluation_seconds=0.0,
        )  # fmt: skip
        runs = Runs(plan=plan, output=tmp_path)
        for name, (_, found) in losses.items():
            for seed, loss in enumerate(found, 1):
                write(runs, Job(name, 0.1, 100, seed), loss)
        for seed, loss in enumerate(longer or [], 1):
            write(runs, Job(names[0], 0.1, plan.longest, seed), loss)
        return runs

    return make


def write(runs: Runs, job: Job, loss: float | None) -> None:
    """A record with a loss; None: the run diverged."""
    Record(
        recipe="compare", variant="x", kind="comparison", seed=job.seed, config={}, overrides={},
        metrics={} if loss is None else {"loss": loss}, signatures={},
        curve=[] if loss is None else [{"iteration": each, "valid_loss": 100 * loss / each} for each in (50, 100)],
        training={"seconds": 1.0, "pieces": 1}, parameters=10, checkpoint_sha256=None if loss is None else "0" * 64,
        data={}, packages={}, machine={"cpu": "x", "threads": 1}, date="2026-11-29",
    ).write(runs.path(job))  # fmt: skip
