"""`rskip initialise`: the profiling pass of a fairseq-train's first batch, and the training that starts from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fairseq_compat.one_line_errors import UsageError
from rskip.checkpoint import read_checkpoint
from rskip.checkpoint.transformer import build_transformer
from rskip.cli.main import main
from rskip.connections import AdminConnection
from rskip.fairseq_plugin.model import ConnectionTransformer

ADMIN = ["--arch", "transformer_rskip_ln_tiny", "--connection", "admin"]


def initialise(train_command, output: Path, *flags: str) -> dict[str, torch.Tensor]:
    assert main(["initialise", "--output", str(output), *train_command(output.parent / "none", *flags)[1:]]) == 0
    return read_checkpoint(output).model


def test_every_weight_is_what_the_blocks_before_it_give(train_command, tmp_path, monkeypatch):
    """By the finished model on the same batch: ω²_{i+1} = Var(ω_i x_i) + Var(f_i), over tokens that are no padding."""
    batches, forward = [], ConnectionTransformer.forward

    def kept(self, **batch):
        batches.append(batch)
        return forward(self, **batch)

    monkeypatch.setattr(ConnectionTransformer, "forward", kept)
    flags = ["--dropout", "0", "--encoder-layerdrop", "0.5", "--bf16"]
    start = initialise(train_command, tmp_path / "start.pt", *ADMIN, *flags)
    (batch,) = batches
    words = len(start["encoder.embed_tokens.weight"])
    checkpoint = read_checkpoint(tmp_path / "start.pt")
    model = build_transformer(checkpoint, source_vocabulary=words, target_vocabulary=words)
    for stack, tokens in (("encoder", batch["src_tokens"]), ("decoder", batch["prev_output_tokens"])):
        assert tokens.eq(1).any()
        seen: list[tuple[float, float]] = []

        def note(connection, inputs, tokens=tokens, seen=seen):
            x, f = (each[tokens.ne(1)].double() for each in inputs)
            weight = connection.skip_weight.double()
            assert (weight == weight[0]).all()
            seen.append((weight[0].item(), ((weight * x).var(correction=0) + f.var(correction=0)).item()))

        for each in getattr(model, stack).modules():
            if isinstance(each, AdminConnection):
                each.register_forward_pre_hook(note)
        with torch.no_grad():
            model(batch["src_tokens"], batch["prev_output_tokens"])
        weights, squares = zip(*seen, strict=True)
        assert weights[0] == 1 and len(weights) == (4 if stack == "encoder" else 6)
        torch.testing.assert_close(torch.tensor(weights[1:]) ** 2, torch.tensor(squares[:-1]), rtol=1e-4, atol=0)


@pytest.mark.slow
def test_a_training_starts_from_it_and_is_resumed(train_command, train, tmp_path, capsys):
    flags = [*ADMIN, "--dropout", "0.2"]
    start = initialise(train_command, tmp_path / "start.pt", *flags)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("encoder: ω 1.0000 1.") and len(printed[0].split()) == 6
    assert printed[1].startswith("decoder: ω 1.0000 1.") and len(printed[1].split()) == 8
    again = initialise(train_command, tmp_path / "again.pt", *flags)
    assert all(torch.equal(again[name], tensor) for name, tensor in start.items())

    flags += ["--finetune-from-model", str(tmp_path / "start.pt")]
    unbroken = train(tmp_path / "unbroken", *flags, "--max-update", "8")
    first = train(tmp_path / "resumed", *flags, "--max-update", "3")
    near = [(first[name] - tensor).abs().max() < 0.02 for name, tensor in start.items() if "skip_weight" in name]
    assert len(near) == 10 and all(near)  # three of Adam's steps
    resumed = train(tmp_path / "resumed", *flags, "--max-update", "8")
    assert all(torch.equal(resumed[name], tensor) for name, tensor in unbroken.items())


def test_a_training_without_it_is_refused(train, tmp_path):
    with pytest.raises(UsageError, match=r"^admin starts from a profiling pass: run `rskip initialise --output"):
        train(tmp_path / "out", *ADMIN, "--max-update", "1")


@pytest.mark.parametrize(
    ("output", "flags", "line"),
    [
        (
            "start.pt",
            ["--connection", "wskip+ln"],
            "--connection is wskip+ln: expected one that needs a profiling pass, such as admin",
        ),
        ("start.pt", [*ADMIN, "--lrr", "1"], "unrecognized arguments: --lrr 1"),
        ("start.pt", [*ADMIN, "--max-tokens", "None"], "argument --max-tokens"),
        ("start.safetensors", ADMIN, "start.safetensors: expected a name that ends in .pt"),
    ],
)
def test_a_mistake_is_one_line(train_command, tmp_path, capsys, output, flags, line):
    words = train_command(tmp_path / "none", "--arch", "transformer_rskip_ln_tiny", *flags)[1:]
    assert main(["initialise", "--output", str(tmp_path / output), *words]) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert error.startswith("rskip initialise: error: ") and line in error
    assert not list(tmp_path.iterdir())
