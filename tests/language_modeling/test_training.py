"""Trainings: batches, decay, curves, divergence; tests/vision has the loop that images and text share."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rskip.checkpoint import untrained_language_model
from rskip.cli.main import main as rskip_command
from rskip.connections import list_connections
from rskip.language_modeling.data import load_data
from rskip.language_modeling.evaluation import token_losses
from rskip.language_modeling.model_file import load_language_model, model_config
from rskip.language_modeling.settings import TrainingSettings, learning_rate
from rskip.language_modeling.training import (
    adamw,
    iteration_seed,
    read_curve,
    train,
    training_batches,
)
from rskip.machine.ranks import Ranks
from rskip.tasks.training import Diverged
from tests.language_modeling.conftest import SETTINGS


def test_batches_are_sequences_at_offsets_that_seed_and_iteration_determine() -> None:
    tokens, cpu = torch.arange(100), torch.device("cpu")

    def batches(seed: int, ranks: Ranks) -> Callable[[int], tuple[torch.Tensor, torch.Tensor, int]]:
        return training_batches(tokens, batch_size=5, context=8, seed=seed, device=cpu, ranks=ranks)

    one = batches(1, Ranks())
    inputs, targets, count = one(3)
    assert inputs.shape == targets.shape == (5, 8) and count == 40 and torch.equal(targets, inputs + 1)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(8))
    parts = [batches(1, Ranks(rank, 2))(3)[0] for rank in (0, 1)]
    assert torch.equal(parts[0], inputs[::2]) and torch.equal(parts[1], inputs[1::2])
    assert not torch.equal(one(4)[0], inputs) and not torch.equal(batches(2, Ranks())(3)[0], inputs)
    first = torch.cat([one(number)[0][:, 0] for number in range(400)])
    assert set(first.tolist()) == set(range(92))  # the last sequence ends with the text's last token
    seeds = {iteration_seed(seed, number, rank) for seed in range(8) for number in range(300) for rank in range(3)}
    assert len(seeds) == 8 * 300 * 3 and all(0 <= seed < 2**63 for seed in seeds)


def test_the_learning_rate_rises_and_falls_as_nanogpts() -> None:
    settings = TrainingSettings()
    assert learning_rate(settings, 0) == pytest.approx(1e-3 / 101) and learning_rate(settings, 100) == 1e-3
    assert learning_rate(settings, 1050) == pytest.approx(5.5e-4) and learning_rate(settings, 2000) == 1e-4


def test_only_matrices_decay_and_the_initial_weights_are_gpt2s() -> None:
    settings = TrainingSettings()
    model = untrained_language_model(model_config(settings, 68))
    decayed, free = adamw(model, settings).param_groups
    assert {each.dim() for each in decayed["params"]} == {2} and {each.dim() for each in free["params"]} == {1}
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    # of nanoGPT's model with 68 tokens: 4 layers, embeddings of tokens and positions, and 9 norms without biases
    assert sum(each.numel() for each in model.parameters()) == 4 * 12 * 128**2 + (68 + 64 + 9) * 128
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            last = name.endswith(("out_proj.weight", "fc2.weight"))
            assert parameter.std().item() == pytest.approx(0.02 / math.sqrt(8) if last else 0.02, rel=0.1), name
        else:
            assert torch.equal(parameter, torch.ones(128)), name
    mixing = untrained_language_model(model_config(TrainingSettings(connection="hyper"), 68))
    _, free = adamw(mixing, settings).param_groups
    assert sum(each.shape == (4, 4) for each in free["params"]) == 8  # stream_weights, which start as the identity


def test_a_training_learns_and_its_curve_has_the_losses_of_its_model(
    trained: Path,
    train_here: Callable[..., None],
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = read_curve(trained / "curve.jsonl")
    assert [point.iteration for point in points] == [6, 11]
    found, data = load_language_model(trained), load_data(prepared)
    losses = token_losses(found.model, data.splits["valid"], context=8, start=data.tokens.dictionary.eos_index)
    assert len(losses) == len(data.splits["valid"]) and float(losses.sum()) / len(losses) == points[-1].valid_loss
    assert found.corpus == "cats"
    logged: list[Any] = []
    wandb = SimpleNamespace(
        log=lambda values, *, step: logged.append((step, values)), finish=lambda: logged.append("finished")
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **options: logged.append(options) or wandb))
    settings = {"iterations": 150, "lr": 1e-2, "final_lr": 1e-3, "evaluate_every": 150, "shape": "llama"}
    train_here(tmp_path, tracker="wandb", **settings)
    (last,) = read_curve(tmp_path / "curve.jsonl")
    assert last.valid_loss < 0.6 * points[-1].valid_loss
    options, (step, values), finished = logged
    assert finished == "finished" and options["name"] == "2rskip+ln, lr 0.01, seed 5"
    assert (options["mode"], options["config"]["settings"]["lr"]) == ("offline", 1e-2)
    assert (step, values["valid/loss"], values["lr"]) == (150, last.valid_loss, last.lr)


def test_a_training_on_another_text_is_refused(trained: Path, prepared: Path) -> None:
    data = load_data(prepared)
    data = replace(data, described={**data.described, "files_sha256": "0" * 64})
    settings = TrainingSettings(**{**SETTINGS, "dropout": 0.1})
    with pytest.raises(ValueError, match=r"other settings \(text: the content has changed since the earlier run\)"):
        train(settings, data=data, folder=trained, seed=5, device="cpu")


KILLED_RUN = """
import sys
from pathlib import Path
from rskip.files.folder_lock import folder_lock
from rskip.tasks.process import executable, run_logged

data, folder, *flags = sys.argv[1:]
command = ["torchrun", "--standalone", "--nproc-per-node", "2", executable("rskip"), "lm", "train", data]
with folder_lock(Path(folder), busy="busy") as lock:
    command += ["--output", f"{folder}/model", *flags]
    run_logged(command, log=Path(folder, "log"), processes=2, lock=lock)
"""


@pytest.mark.slow
def test_two_processes_end_with_their_killed_run_and_the_same_command_gives_the_same_bytes(
    prepared: Path, tmp_path: Path, fairseq_program: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**SETTINGS, "iterations": 40}.items()]
    flags += ["--device", "cpu"]
    command = [sys.executable, "-c", KILLED_RUN, str(prepared), str(tmp_path / "killed"), *flags]

    def ranks() -> list[str]:
        """The processes that train in the folder of the killed run, by its mark."""
        return [each.parent.name for each in Path("/proc").glob("[0-9]*/environ") if _holds(each, mark)]

    straight = ["lm", "train", str(prepared), "--output", "straight/model", *flags]
    assert fairseq_program("rskip", *straight, folder=tmp_path, fairseq=False, ranks=2).returncode == 0
    killed = subprocess.Popen(command)
    while not (tmp_path / "killed/model/checkpoint.pt").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    mark = (tmp_path / "killed/lock").read_text().partition("token=")[2].partition("\n")[0].encode()
    assert len(ranks()) == 3, "torchrun and two ranks"
    killed.kill()
    killed.wait()
    subprocess.run(command, check=True)
    assert not ranks()
    sessions = torch.load(tmp_path / "killed/model/checkpoint.pt", weights_only=True)["sessions"]
    assert [each["from"] > 0 for each in sessions] == [False, True]
    models = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("straight", "killed")]
    assert models[0] == models[1]


def _holds(file: Path, mark: bytes) -> bool:
    try:
        return mark in file.read_bytes()
    except OSError:  # it has ended
        return False


def test_a_training_that_diverges_says_so(train_here: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"not finite after 4 iterations \(lr .*, connection 2rskip\+ln\): try a lower"):
        train_here(tmp_path, lr=1e30, warmup_iterations=0, clip_norm=None)
    assert not (tmp_path / "model.safetensors").exists()


def test_wrong_settings_are_told(train_here: Callable[..., None], prepared: Path, tmp_path: Path) -> None:
    for changes, told in (
        ({"heads": 3}, "features is 16: expected a multiple of heads, 3"),
        ({"final_lr": 0.1}, "final_lr is 0.1: expected at most lr, 0.001"),
        ({"shape": "llama", "bias": True}, "bias is True: expected no biases with shape llama"),
        ({"connection": "admin"}, "connection is 'admin': expected one without a pass over data"),
        ({"context": 600}, "the training text has .* tokens: expected more than the context, 600"),
        ({"seed": -1}, "the seed is -1: expected 0 to"),
    ):
        with pytest.raises(ValueError, match=told):
            train_here(tmp_path, **changes)
    with pytest.raises(ValueError, match="is in the folder of the data"):
        train_here(prepared / "model")
    (tmp_path / "dict.txt").touch()
    (tmp_path / "corpus.json").write_text('{"captions": {"train": 9}, "files": {}, "sizes": {}}')
    for bad in ("nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match="holds no text: expected a folder from `rskip prepare"):
            load_data(bad)


def test_a_connection_that_cannot_be_probed_is_refused_before_anything_is_written(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    command = ["lm", "train", str(prepared), "--connection", "hyper", "--probe-every", "2", "--output", str(output)]
    assert rskip_command(command) == 2
    told = "--probe-every needs a connection that passes on one x, but hyper passes on several tensors"
    assert capsys.readouterr().err == f"rskip lm train: error: {told}: leave out the flag\n"
    assert not output.exists()


TEXT_FAMILIES = [each for each in list_connections() if "text" in each.works_on and not each.needs_profile]


@pytest.mark.parametrize("family", TEXT_FAMILIES, ids=lambda family: family.name)
def test_every_family_takes_a_step(family: Any, prepared: Path) -> None:
    norm = "ln" if "ln" in family.norms else family.norms[0]
    spec = ("2" if family.factor is not None else "") + family.name + ("" if norm is None else f"+{norm}")
    settings = TrainingSettings(connection=spec, layers=2, heads=2, features=16, context=8, batch_size=4)
    data, cpu = load_data(prepared), torch.device("cpu")
    model = untrained_language_model(model_config(settings, len(data.tokens.dictionary)))
    batch = training_batches(data.splits["train"], batch_size=4, context=8, seed=1, device=cpu, ranks=Ranks())
    inputs, targets, _ = batch(0)
    loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    assert loss.isfinite() and all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())
