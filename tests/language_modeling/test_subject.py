"""Language models under analysis: new ones and trained ones."""

from __future__ import annotations

import pytest
import torch

from rskip.analysis.analyses import depth, find_subjects, gradients, signals, streams
from rskip.language_modeling.data import load_data
from rskip.language_modeling.evaluation import token_losses
from rskip.settings.errors import SettingError
from rskip.tasks.subject import Conditions


def test_new_models(prepared):
    options = {"task": "language_modeling", "depths": [2], "examples": 3, "data": str(prepared)}
    found = signals(["prenorm+ln"], **options)
    names = [f"decoder.layers.{layer}.{branch}" for layer in (0, 1) for branch in ("self_attn", "ffn")]
    assert [row["name"] for row in found.rows] == names and found.rows[0]["similarity"] < 1
    assert len(gradients(["prenorm+ln"], **options, batch_size=2).rows) == 4
    mixed = streams(["hyper", "mhc"], **options).rows
    assert {row["model"]: row["stream_similarity"] for row in mixed}["hyper"] == 1.0  # copies, at initialisation
    assert all(row["row_gain"] == pytest.approx(1, abs=1e-3) for row in mixed)
    read = [row["weight"] for row in depth(["prenorm+ln"], **options).rows if row["over"] == "sources"]
    assert read == [1.0] * (1 + 2 + 3 + 4)


def test_a_trained_model_and_its_losses(prepared, train_here, tmp_path):
    train_here(tmp_path / "run")
    conditions = Conditions(examples=2, data=str(prepared), split="valid", batch_size=1)
    (subject,) = find_subjects([tmp_path / "run"], conditions, task="language_modeling")
    assert (subject.label, subject.depth, subject.trained) == ("run", 2, True)
    text, context = load_data(prepared).splits["valid"], subject.model.config.max_target_positions
    offsets = conditions.choose(len(text) - context, "the text")
    for offset, batch in zip(offsets, subject.batches(conditions), strict=True):
        part = text[offset : offset + context + 1]
        expected = token_losses(subject.model, part[1:], context=context, start=int(part[0])).mean()
        torch.testing.assert_close(batch.losses().detach().double(), expected[None], rtol=1e-5, atol=0)
    assert signals([tmp_path / "run"], examples=2, data=str(prepared)).rows, "found without naming the task"


def test_bad_input_is_one_line(prepared):
    for options, problem in (
        ({}, "data is missing: expected a text for a language model"),
        ({"data": str(prepared), "split": "test"}, "split is 'test': expected train or valid"),
        ({"data": str(prepared), "depths": [0]}, "layers is 0: expected"),
        ({"data": str(prepared), "examples": 10**6}, "examples is 1000000: expected at most"),
    ):
        with pytest.raises(SettingError, match=problem):
            signals(["prenorm+ln"], task="language_modeling", **{"examples": 2, "depths": [1], **options})
