"""fairseq trains, resumes, parallelises, validates and generates with our models."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fairseq_compat.one_line_errors import UsageError
from rskip.analysis.trace import read_updates
from rskip.checkpoint import from_stock, read_checkpoint
from rskip.tasks.process import DIVERGED

RSKIP = ["--arch", "transformer_rskip_ln_tiny"]


def assert_equal(ours: dict, expected: dict, atol: float = 0) -> None:
    assert ours.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture(scope="module")
def trained(train: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after three epochs."""
    folder = tmp_path_factory.mktemp("trained")
    train(folder, *RSKIP, "--max-epoch", "3")
    return folder / "checkpoint_last.pt"


@pytest.mark.slow
def test_two_processes_go_on_as_one_does_with_update_freq_2(train, train_command, fairseq_program, tmp_path):
    """With fairseq's criterion; tests/translation/test_distributed_training.py has ours, and torchrun itself."""
    flags = [*RSKIP, "--dropout", "0", "--max-tokens", "100"]
    # k_proj.bias has no effect on a softmax: Adam's usual epsilon would blow up the rounding noise of its gradient
    flags += ["--adam-eps", "1e-4"]
    one = train(tmp_path / "one", *flags, "--update-freq", "2", "--max-epoch", "2")
    train(tmp_path / "two", *flags, "--update-freq", "2", "--max-epoch", "1")
    probe = ["--probe-file", str(tmp_path / "probe.jsonl"), "--probe-every", "1"]
    command = train_command(tmp_path / "two", *flags, *probe, "--max-epoch", "2", "--distributed-backend", "gloo")
    process = fairseq_program(*command, folder=tmp_path, ranks=2)
    assert process.returncode == 0, process.stderr[-3000:]
    assert_equal(read_checkpoint(tmp_path / "two" / "checkpoint_last.pt").model, one, atol=1e-4)
    updates = read_updates(tmp_path / "probe.jsonl")  # one process writes
    assert [each["update"] for each in updates] == list(range(updates[0]["update"], updates[-1]["update"] + 1))
    assert updates[0]["update"] > 1 and all(each["gradient_norm"] > 0 for each in updates)


@pytest.mark.slow
def test_learns(train, tmp_path):
    flags = ["--bf16", "--criterion", "rskip_label_smoothed_cross_entropy"]
    flags += ["--connection", "sas", "--encoder-layerdrop", "0.1", "--decoder-layerdrop", "0.1"]
    train(tmp_path, *RSKIP, "--dropout", "0.0", "--lr", "1e-2", "--max-epoch", "8", *flags)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    losses = state["extra_state"]["metrics"]
    # A sentence has 2 to 8 words, each one of 20: the best that knows nothing but its own length so far.
    blind = (math.log2(7) + 5 * math.log2(20)) / 6
    nll = dict((key, meter) for _, key, _, meter in losses["valid"])["nll_loss"]
    assert nll["sum"] / nll["count"] < blind - 0.05


def test_validates_and_generates(trained, reversed_words, fairseq_program, tmp_path):
    common = [str(reversed_words / "bin"), "--user-dir", "rskip", "--path", str(trained), "--cpu", "--num-workers", "0"]
    validate = ["--task", "translation", "--max-tokens", "200"]
    process = fairseq_program("fairseq-validate", *common, *validate, folder=tmp_path)
    assert process.returncode == 0 and "valid on 'valid' subset" in process.stdout, process.stderr[-2000:]
    process = fairseq_program("fairseq-generate", *common, "--beam", "3", "--print-alignment", folder=tmp_path)
    assert process.returncode == 0, process.stderr[-2000:]
    lines = process.stdout.splitlines()
    hypotheses = {line.split("\t")[0]: line.split("\t")[2] for line in lines if line.startswith("H-")}
    alignments = {line.split("\t")[0]: line.split("\t")[1] for line in lines if line.startswith("A-")}
    assert len(hypotheses) == len(alignments) == 20
    for key, hypothesis in hypotheses.items():  # one source position for each target token
        targets = [int(pair.split("-")[1]) for pair in alignments["A" + key[1:]].split()]
        assert targets == list(range(len(hypothesis.split()) + 1))[: len(targets)] and targets


def test_own_connection_from_the_example_user_dir(train_command, fairseq_program, root, tmp_path):
    """In a process of its own: this one has the package `user_dir` for good then."""
    command = train_command(tmp_path / "out", *RSKIP, "--user-dir", str(root / "user_dir"), "--connection", "rezero")
    process = fairseq_program(*command, "--max-update", "3", folder=tmp_path)
    assert process.returncode == 0, process.stderr[-2000:]
    model = read_checkpoint(tmp_path / "out" / "checkpoint_last.pt").model
    alphas = [tensor for name, tensor in model.items() if name.endswith("_connection.alpha")]
    assert len(alphas) == 2 * 2 + 2 * 3 and all(alpha.item() != 0 for alpha in alphas)


@pytest.mark.slow
@pytest.mark.parametrize("connection", ["deepnorm", "hyper:streams=2", "denseformer", "attnres", "hybridnorm"])
def test_a_connection_of_each_form_trains_and_our_translator_agrees(
    connection, train, generate, reversed_words, tmp_path
):
    """One that needs its place, of several streams, of history, and one of inner norms, with a value residual."""
    values = ["--value-residual", "learned"] if connection == "hybridnorm" else []
    train(tmp_path, *RSKIP, "--connection", connection, "--max-epoch", "3", *values)
    arguments = [reversed_words / "bin", str(tmp_path / "checkpoint_last.pt"), "--beam", "3"]
    assert_same_hypotheses(generate("translation", *arguments), generate("rskip_translation", *arguments))


def assert_same_hypotheses(theirs: list[str], ours: list[str]) -> None:
    """In the lines that fairseq-generate prints of the 20 test sentences."""
    found = []
    for printed in (theirs, ours):
        lines = [line.split("\t") for line in printed if line.startswith("H-")]
        found.append({key: (words, float(score)) for key, score, words in lines})
    assert len(found[0]) == 20 and found[0].keys() == found[1].keys()
    for key, (words, score) in found[0].items():
        assert found[1][key] == (words, pytest.approx(score, abs=2e-4))


def test_a_training_that_diverges_is_one_line_and_a_status_of_its_own(train_command, fairseq_program, tmp_path):
    flags = ["--connection", "sas", "--lr", "1e15", "--warmup-updates", "1", "--max-update", "15"]
    process = fairseq_program(*train_command(tmp_path / "out", *RSKIP, *flags), folder=tmp_path)
    assert process.returncode == DIVERGED, process.stderr[-2000:]
    last = process.stderr.splitlines()[-1]
    assert last == "fairseq-train: error: the training diverged: gradients are Nan/Inf"


def test_another_connection_of_equal_parameters_is_refused_but_where_the_training_is_a_new_one(train, tmp_path):
    train(tmp_path, *RSKIP, "--connection", "2xskip+ln", "--max-update", "1")
    last = tmp_path / "checkpoint_last.pt"
    before = last.read_bytes()
    refusal = r"was trained with --encoder-connection 2xskip\+ln, not deepnorm: use the same flags as in its"
    with pytest.raises(UsageError, match=refusal):
        train(tmp_path, *RSKIP, "--encoder-connection", "deepnorm", "--max-update", "2")
    with pytest.raises(UsageError, match=r"--value-residual none, not fixed: .* --save-dir; to start a new run "):
        train(tmp_path, *RSKIP, "--connection", "2xskip+ln", "--value-residual", "fixed", "--max-update", "2")
    with pytest.raises(UsageError, match=r"was trained with --encoder-attention-heads 2, not 4: use the same flags"):
        train(tmp_path, *RSKIP, "--connection", "2xskip+ln", "--encoder-attention-heads", "4", "--max-update", "2")
    assert last.read_bytes() == before
    train(tmp_path / "new", *RSKIP, "--connection", "deepnorm", "--max-update", "1", "--finetune-from-model", str(last))
    with pytest.raises(UsageError, match=r"not in the model .*: 2rskip.ln.: use the same flags .* out$"):
        train(tmp_path / "more", *RSKIP, "--max-update", "1", "--finetune-from-model", str(last))
    with pytest.raises(UsageError, match=r"or leave --restore-file out; .*use --finetune-from-model .* --save-dir$"):
        train(tmp_path / "more", *RSKIP, "--max-update", "2", "--restore-file", str(last), "--connection", "deepnorm")
    train(tmp_path, *RSKIP, "--connection", "2XSKIP+LN", "--max-update", "2")


@pytest.mark.parametrize(
    ("arch", "norms"),
    [
        ("transformer_skip_ln_tiny", []),
        ("transformer_prenorm_tiny", ["--encoder-normalize-before", "--decoder-normalize-before"]),
    ],
)
def test_a_model_starts_from_fairseqs_own_transformer_but_does_not_resume_its_training(arch, norms, train, tmp_path):
    train(tmp_path, "--arch", "transformer", *norms, "--max-update", "1")
    last = tmp_path / "checkpoint_last.pt"
    flags = ["--arch", arch, "--max-update", "2"]
    with pytest.raises(UsageError, match=f"was trained with --arch transformer, not {arch}: use the same flags"):
        train(tmp_path, *flags)
    tuned = train(tmp_path / "new", *flags, "--finetune-from-model", str(last), "--lr", "1e-9")
    assert_equal(tuned, from_stock(read_checkpoint(last).model), atol=1e-6)


def test_our_form_of_a_loss_goes_on_from_fairseqs(train, tmp_path):
    flags = [*RSKIP, "--max-update"]
    ours = ["--criterion", "rskip_label_smoothed_cross_entropy"]
    train(tmp_path / "changed", *flags, "4")
    changed, whole = (train(tmp_path / name, *flags, "8", *ours) for name in ("changed", "whole"))
    for name, tensor in whole.items():
        torch.testing.assert_close(changed[name], tensor, rtol=1e-3, atol=1e-4)


def test_another_dictionary_of_the_same_size_is_refused(train, train_command, reversed_words, tmp_path, monkeypatch):
    from fairseq_cli.train import cli_main

    train(tmp_path / "run", *RSKIP, "--max-update", "1")
    last, data = tmp_path / "run/checkpoint_last.pt", tmp_path / "data"
    shutil.copytree(reversed_words / "bin", data)
    for dictionary in data.glob("dict.*.txt"):
        dictionary.write_text("".join(reversed(dictionary.read_text().splitlines(keepends=True))))

    def continue_in(name: str, *flags: str) -> None:
        command = train_command(tmp_path / name, *RSKIP, "--max-update", "2", *flags)
        monkeypatch.setattr(sys, "argv", [command[0], str(data), *command[2:]])
        cli_main()

    for name, *flags in (["run"], ["new", "--finetune-from-model", str(last)]):
        with pytest.raises(UsageError, match=f"{last} and the data {data} have different source and target dict"):
            continue_in(name, *flags)
    state = torch.load(last)
    del state["extra_state"]["dictionaries"]  # as in earlier versions
    torch.save(state, last)
    continue_in("run")
