"""`rskip.compare` and `rskip compare`, from the model to the runs' records."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path

import pytest
import torch
from torch import nn

import rskip
from rskip.cli.main import main
from rskip.comparison.batches import OwnBatches, Text
from rskip.comparison.plan import PILOT, Measured
from rskip.comparison.result import Comparison
from rskip.comparison.subjects import Job, model_loss
from rskip.experiments.sweep import SweepJob
from rskip.language_modeling.training import read_curve
from rskip.machine.ranks import Ranks
from rskip.records import read_record
from tests.killing import killed_until_done

CPU = torch.device("cpu")


def module(own: Path) -> object:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(own.name)
    finally:
        sys.path.remove("")


def compared(own: Path, connections: list[str], **options: object) -> Comparison:
    found = module(own)
    settings = {"updates": 10, "seeds": 2, **options}
    return rskip.compare(found.build, found.batches(), connections, output="out", device="cpu", **settings)


def command(own: Path, *more: str) -> list[str]:
    return [
        "compare", f"{own.name}:build", "--data", f"{own.name}:batches", "--connections", "2rskip+ln",
        "--updates", "10", "--seeds", "2", "--output", "out", "--device", "cpu", *more,
    ]  # fmt: skip


def losses(output: str = "out", updates: int = 10) -> dict[str, float]:
    """The last losses of runs of this length. (The baseline's longer runs have a length that was measured.)"""
    return {
        f"{path.parent.name}/{path.stem}": read_record(path).metrics["loss"]
        for path in Path(output, "runs").glob(f"*_{updates}/[!.]*.json")  # not what a killed process was writing
    }


def test_a_pilot_chooses_the_rate_and_other_seeds_are_compared(own: Path) -> None:
    found = compared(own, ["2rskip+ln"], rates=[1e-6, 1e-2])
    assert [row.connection for row in found.rows] == ["own", "2rskip+ln"]
    assert all(row.rate == 1e-2 and set(row.losses) == {1, 2} for row in found.rows)
    made = losses()
    pilots = {name for name in made if name.endswith(f"/{PILOT}")}
    assert pilots == {f"{slug}_lr{rate}_10/0" for slug in ("own", "2rskip_ln") for rate in ("1e-06", "0.01")}
    assert not [path for path in Path("out/runs").glob("*/*") if path.is_dir()]
    before = {path: path.stat().st_mtime_ns for path in Path("out/runs").glob("*/*.json")}
    more = compared(own, ["2rskip+ln", "mhc"], rates=[1e-6, 1e-2], seeds=3)  # extends it
    assert {len(row.losses) for row in more.rows} == {3} and len(more.rows) == 3
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    with pytest.raises(ValueError, match="another comparison .*updates: 10, now 20"):
        compared(own, ["2rskip+ln"], updates=20)
    with pytest.raises(ValueError, match="another comparison .*loss"):
        compared(own, ["2rskip+ln"], loss=module(own).not_finite)


def test_a_run_of_gpt2_is_that_of_lm_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"{number} and {number * number}\n" for number in range(200)))
    size = ["--layers", "2", "--features", "16", "--heads", "2", "--context", "8", "--batch-size", "3"]
    status = main(
        ["compare", "gpt2", "--data", "text.txt", "--connections", "residual_dual", "--updates", "40",
         "--rates", "1e-3", "--seeds", "2", "--output", "out", "--device", "cpu", *size]
    )  # fmt: skip
    assert not status
    for connection, slug in (("prenorm+ln", "prenorm_ln"), ("residual_dual", "residual_dual")):
        train = ["lm", "train", "out/data", "--connection", connection, "--iterations", "40", "--seed", "2", *size]
        schedule = ["--set", "warmup_iterations=2", "evaluate_every=8"]
        assert not main([*train, *schedule, "--output", connection, "--device", "cpu"])
        record = read_record(Path(f"out/runs/{slug}_lr0.001_40/2.json"))
        curve = read_curve(Path(connection, "curve.jsonl"))
        assert [point.valid_loss for point in curve] == [point["valid_loss"] for point in record.curve]


def test_the_time_decides_the_updates(own: Path) -> None:
    with pytest.raises(ValueError, match=r"minutes is 1e-06: expected \S+ or more"):
        compared(own, ["2rskip+ln"], updates=None, minutes=1e-6)
    assert not Path("out/plan.json").exists()
    found = compared(own, ["2rskip+ln"], updates=None, minutes=0.04, rates=[1e-2])
    plan = found.plan
    expected = sum(plan.seconds(job) for job in plan.tests(dict.fromkeys(plan.all, 1e-2)))
    each = plan.seconds(Job("own", 1e-2, 1, 1)) * 8
    assert 0.9 * 2.4 - each <= expected <= 0.9 * 2.4 + each  # the baseline's longer runs have whole updates
    with pytest.raises(ValueError, match="another comparison .*minutes: 0.04, now 1"):
        compared(own, ["2rskip+ln"], updates=None, minutes=1, rates=[1e-2])


def test_later_connections_are_timed_beside_the_baseline(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"own": 1.0, "2rskip+ln": 2.0, "mhc": 3.0}

    def measured(subject: object, names: list[str], **settings: object) -> object:
        made = {name: Measured(seconds=times[name], kept_megabytes=1.0, parameters=1) for name in names}
        return made, 0.1

    monkeypatch.setattr("rskip.comparison.plan.measure", measured)
    compared(own, ["2rskip+ln"], updates=1, rates=[1e-2])
    times |= {"own": 10.0, "mhc": 30.0}  # the machine is slower now
    plan = compared(own, ["2rskip+ln", "mhc"], updates=1, rates=[1e-2]).plan
    assert {name: each.seconds for name, each in plan.measured.items()} == {"own": 1.0, "2rskip+ln": 2.0, "mhc": 3.0}


def test_a_run_that_diverges_ends_early_and_the_others_go_on(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(own, ["2rskip+ln"], rates=[1e-2, 1e12])
    assert all(row.rate == 1e-2 and len(row.losses) == 2 for row in found.rows)
    assert "not finite after" in capsys.readouterr().out
    assert read_record(Path("out/runs/own_lr1e+12_10/0.json")).diverged


def test_adapt_runs_the_model_as_its_loss_does(own: Path) -> None:
    found = module(own)
    pairs = found.batches()

    class Targets(found.Model):
        def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(super().forward(tokens).flatten(0, 1), targets.flatten())

    class Two(found.Model):
        cache = torch.ones(0, 1)

        def forward(self, tokens: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
            if tokens.size(1) > len(self.cache):  # as in an evaluation, which has longer batches
                self.cache = torch.ones(tokens.size(1), 1)
            return super().forward(tokens) * self.cache[: tokens.size(1)] * factor

    class Named(Two):
        def forward(self, **given: torch.Tensor) -> torch.Tensor:
            return super().forward(**given).square().mean()

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return model(batch[0], torch.ones(1)).square().mean()

    longer = [(torch.cat(pairs[0], 1), pairs[0][1])]
    named = [{"factor": torch.tensor(0.5), "tokens": tokens} for tokens, _ in pairs]
    own_loss = {"loss": loss, "valid": longer}
    for kind, data, options in ((Targets, pairs, {}), (Two, pairs, own_loss), (Named, named, {})):
        settings = {"updates": 2, "seeds": 2, "rates": [1e-2], "output": kind.__name__, "device": "cpu", **options}
        assert len(rskip.compare(partial(kind, 11), data, ["mhc"], **settings).rows[1].losses) == 2


@pytest.mark.parametrize(
    "change, told",
    [
        ({"--connections": ["2rskip+lm"]}, "did you mean"),
        ({"--connections": ["deepnorm"]}, "branch"),
        ({"--connections": ["own"]}, "besides the baseline"),
        ({"--baseline": ["2RSKIP+LN"]}, "besides the baseline"),
        ({"--data": ["nowhere.txt"]}, "no such file"),
        ({"--data": ["{own}:nothing"]}, "nothing"),
        ({"--loss": ["{own}:wrong_loss"]}, r"loss returns a tensor of shape \(4, 6, 11\)"),
        ({"--minutes": ["0"], "--updates": []}, "above 0"),
        ({"--seeds": ["1"]}, "2"),
        ({"--rates": ["-1"]}, "above 0"),
        ({"--layers": ["3"]}, "gpt2 or llama only"),
        ({"MODEL": "nonsense"}, "gpt2, llama, hf:FOLDER"),
        ({"MODEL": "hf:early", "--data": ["long.txt"]}, "config.json names LLaMAForCausalLM"),
        ({"MODEL": "{own}:number"}, "returns a torch.nn.Module, not int"),
        ({"MODEL": "{own}:Model"}, r"missing a required argument: 'vocab_size'\); write one that builds the model"),
        ({"MODEL": "gpt2", "--data": ["short.txt"]}, "smaller context"),
        ({"MODEL": "timm:vit_tiny_patch16_224", "--data": ["long.txt"]}, "a text: expected images"),
    ],
)
def test_bad_input_is_told_in_one_line(
    own: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], told: str
) -> None:
    Path("short.txt").write_text("ten words " * 5)
    Path("long.txt").write_text("ten words " * 500)
    Path("early").mkdir()
    Path("early/config.json").write_text('{"model_type": "llama", "architectures": ["LLaMAForCausalLM"]}')
    flags = {"--data": [f"{own}:batches"], "--connections": ["2rskip+ln"], "--updates": ["10"], "--seeds": ["2"]}
    flags |= {name: [str(each).format(own=own) for each in value] for name, value in change.items() if name != "MODEL"}
    words = [word for name, values in flags.items() if values for word in (name, *values)]
    model = str(change.get("MODEL", "{own}:build")).format(own=own)
    assert main(["compare", model, *words, "--output", "out", "--device", "cpu"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("rskip compare: error: ")
    assert re.search(told, error), error


def test_a_killed_comparison_resumes_with_the_same_losses(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not main(command(own, "--rates", "1e-2"))
    whole = losses()
    words = command(own, "--rates", "1e-2")
    words[words.index("out")] = "killed"

    @wraps(model_loss)
    def stopping(model: nn.Module, batch: object) -> torch.Tensor:
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # a training heeds it
            os.kill(os.getpid(), signal.SIGTERM)
        return model_loss(model, batch)

    with monkeypatch.context() as patch:
        patch.setattr("rskip.comparison.named.model_loss", stopping)
        assert main(words) == 128 + signal.SIGTERM
    assert losses("killed") != whole
    killed_until_done(partial(main, words), seed=1, longest=0.5)
    assert losses("killed") == whole


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fairseq_program: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"{number} and {number * number}\n" for number in range(200)))
    words = [
        "compare", "gpt2", "--data", "text.txt", "--connections", "residual_dual", "--updates", "20", "--rates", "1e-3",
        "--seeds", "2", "--layers", "1", "--features", "16", "--context", "8", "--batch-size", "4", "--device", "cpu",
    ]  # fmt: skip
    assert not main([*words, "--output", "one"])
    found = fairseq_program("rskip", *words, "--output", "two", folder=tmp_path, fairseq=False, ranks=2)
    assert found.returncode == 0, found.stderr
    one = losses("one", updates=20)
    assert len(one) == 4 and losses("two", updates=20) == pytest.approx(one, abs=1e-5)


def test_processes_with_other_batches_are_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "max", lambda _, sums: sums + 1)  # another process has another checksum
    with pytest.raises(ValueError, match="data differs between the processes .*fixed seed"):
        compared(own, ["2rskip+ln"])


def test_with_ray_each_missing_run_is_a_command(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = command(own, "--rates", "1e-6", "1e-2", "--ray")
    stages = []

    def in_turn(jobs: list[SweepJob], *, address: str) -> list[str]:
        stages.append([job.name for job in jobs])
        assert not address and not [job for job in jobs if main([*job.words(0)]) or not job.result()]
        return []

    monkeypatch.setattr("rskip.cli._compare.run_jobs", in_turn)
    monkeypatch.setattr("sys.argv", ["rskip", *words])
    assert not main(words)
    spread = losses()
    shutil.rmtree("out")
    assert not main([word for word in words if word != "--ray"])
    assert len(stages[0]) == 4 <= len(stages[1]) and losses() == spread
    given, one = module(own).batches(), next(Path("out/runs").glob("*/1.json"))
    monkeypatch.setattr(module(own), "batches", lambda: given[::-1])
    assert main([*words[:-1], "--only", str(one)]) == 2  # its data are not the plan's
    monkeypatch.setattr("rskip.cli._compare.run_jobs", lambda jobs, **_: [f"{jobs[0].name}: it failed"])
    shutil.rmtree("out")
    assert main(words) == 2


def test_a_batch_of_a_masked_model_predicts_a_seventh() -> None:
    tokens = {"train": torch.arange(4000) % 50, "valid": torch.arange(4000) % 50}
    text = Text(tokens=tokens, vocab_size=51, context=32, batch_size=64, sha256="", masked=50)
    (inputs, targets), count, _ = text.draw(1, CPU, Ranks())(3)
    chosen = targets != -100
    assert count == targets.numel() == 64 * 32
    assert chosen.float().mean().item() == pytest.approx(0.15, abs=0.03)
    assert (inputs == 50)[chosen].float().mean().item() == pytest.approx(0.8, abs=0.1)
    assert torch.equal(inputs[~chosen], (inputs[~chosen]) % 50)
    again, _, _ = text.draw(1, CPU, Ranks())(3)
    assert torch.equal(again[0], inputs)
    assert torch.equal(next(text.held_out(CPU))[0][0], next(text.held_out(CPU))[0][0])


def test_own_batches_come_once_per_epoch_and_every_tenth_is_held_out() -> None:
    data = OwnBatches.of(iter(torch.arange(20)))
    assert [int(batch) for batch, _ in data.held_out(CPU)] == [9, 19]
    sizes = OwnBatches.of([torch.zeros(3, 2)] * 9 + [{"x": torch.zeros(2, 2)}])
    assert [count for _, count in sizes.held_out(CPU)] == [2] and sizes.draw(1, CPU, Ranks(1, 2))(0)[1:] == (3, 6)
    half = OwnBatches.of([torch.ones(4, dtype=torch.bfloat16).expand(2, 4)] * 10)
    assert half.identity["batches_sha256"] == hashlib.sha256(b"\x80\x3f" * 16).hexdigest()
    with pytest.raises(ValueError, match="DataLoader"):
        OwnBatches.of(torch.utils.data.TensorDataset(torch.zeros(3)))
    draw = data.draw(1, CPU, Ranks())
    epochs = [[int(draw(18 * epoch + each)[0]) for each in range(18)] for epoch in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted({*range(20)} - {9, 19}) and epochs[0] != epochs[1]
    shared = [[int(data.draw(1, CPU, Ranks(rank, 2))(each)[0]) for rank in range(2)] for each in range(9)]
    assert [each for pair in shared for each in pair] == epochs[0]


class Outputs(nn.Module):
    """Returns what it was made of."""

    def __init__(self, outputs: Callable[[], object]) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, tokens: torch.Tensor) -> object:
        return self.outputs()


def test_a_models_own_loss_or_the_cross_entropy_of_its_outputs() -> None:
    logits, targets = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    for outputs in (logits, (logits, None)):
        assert torch.equal(model_loss(Outputs(lambda outputs=outputs: outputs), (targets, targets)), expected)

    class NanoGPT(nn.Module):
        def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            idx.view(-1), targets.view(-1)  # as nanoGPT does
            return logits, torch.tensor(1.5)

    assert model_loss(NanoGPT(), (targets, targets)) == 1.5
    tokens = torch.arange(100) % 7
    text = Text(tokens={"train": tokens, "valid": tokens}, vocab_size=7, context=8, batch_size=3, sha256="")
    assert model_loss(NanoGPT(), text.draw(1, CPU, Ranks())(0)[0]) == 1.5
    assert model_loss(NanoGPT(), next(text.held_out(CPU))[0]) == 1.5
    with pytest.raises(ValueError, match=r"model returns a tensor of shape \(5,\).* give a loss"):
        model_loss(Outputs(lambda: logits[0, 0]), (targets, targets))
    with pytest.raises(ValueError, match="batch that is a int"):
        model_loss(NanoGPT(), 3)
