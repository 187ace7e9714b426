"""Tests the endings that the plug-in adds to fairseq's programs."""

from __future__ import annotations

import pytest

from fairseq_compat.one_line_errors import end_in_one_line
from rskip.fairseq_plugin import endings
from rskip.tasks.process import DIVERGED


@pytest.fixture(autouse=True)
def program(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/bin/fairseq-train"])


def test_a_training_that_diverged_has_its_own_status(capsys):
    with pytest.raises(SystemExit) as stopped:
        end_in_one_line(FloatingPointError("gradients are\n Nan/Inf"))
    assert stopped.value.code == DIVERGED
    assert capsys.readouterr().err == "fairseq-train: error: the training diverged: gradients are Nan/Inf\n"


def test_a_rank_that_lost_another_one_waits_before_its_traceback(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(endings.time, "sleep", slept.append)
    for text in ("[gloo] Connection closed by peer", "mine"):
        end_in_one_line(RuntimeError(text))
    assert slept == [1.0]
