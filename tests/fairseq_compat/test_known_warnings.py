"""Silence about fairseq's own code, and about nothing else."""

from __future__ import annotations

import re

import pytest


@pytest.mark.slow
def test_import_warns_without_the_patch(python):
    assert "`torch.jit.script` is deprecated" in python("import fairseq", without="known-warnings").stderr


def test_import_does_not_warn(python):
    assert "Warning" not in python("import fairseq", fairseq=False).stderr


def test_other_warnings_are_shown(python):
    process = python(
        """
        import fairseq, warnings
        for category in (UserWarning, FutureWarning, DeprecationWarning, RuntimeWarning):
            warnings.warn("something else", category)
        """
    )
    for category in ("UserWarning", "FutureWarning", "DeprecationWarning", "RuntimeWarning"):
        assert f"{category}: something else" in process.stderr


TRAIN = [
    "bin", "--arch", "transformer", "--encoder-layers", "1", "--decoder-layers", "1",
    "--encoder-embed-dim", "8", "--decoder-embed-dim", "8", "--encoder-attention-heads", "2",
    "--decoder-attention-heads", "2", "--optimizer", "adam", "--lr", "0.001", "--max-tokens", "100",
    "--max-update", "1", "--cpu", "--no-save",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("without", ["", "known-warnings"])
def test_training_warns_only_without_the_patch(fairseq_program, reversed_words, without):
    """Under Python's own choice of what to show, which hides deprecations that concern no user."""
    process = fairseq_program(
        "fairseq-train", *TRAIN, folder=reversed_words, without=without, PYTHONWARNINGS=""
    )
    assert process.returncode == 0, process.stderr
    known = r"torch\.jit\.script|hydra\.experimental|strict flag|pin_memory|\w*Warning"
    warned = set(re.findall(known, process.stderr))
    assert (warned == set()) == (without == "")
    if without:
        assert {"torch.jit.script", "hydra.experimental", "strict flag", "UserWarning"} <= warned
