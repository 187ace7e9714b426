"""Folders of transformers: `rskip analyse` on models that carry streams, and on adapted ones."""

from __future__ import annotations

import pytest
import torch

import rskip
from rskip.analysis.analyses import streams
from rskip.settings.errors import SettingError

transformers = pytest.importorskip("transformers", reason="needs transformers")
SIZES = {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}


@pytest.fixture
def model():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES))


def test_an_adapted_model(model, tmp_path):
    rskip.adapt(model, "mhc").save_pretrained(tmp_path)
    measured = streams(tmp_path, examples=3)
    assert len(measured.rows) == 4 and measured.conditions["data"] == "random tokens"
    assert all(row["effective_rank"] >= 1 and row["from_stochastic"] < 1e-5 for row in measured.rows)
    with pytest.raises(SettingError, match="at most 0"):
        streams(tmp_path, data=str(tmp_path / "config.json"))  # GPT-2's tokenizer without its files


def test_a_model_with_streams_of_its_own(tmp_path):
    pytest.importorskip("transformers.models.hy_v4", reason="needs transformers 5.24")
    from tests.nn.test_stream_models import build

    build("hy_v4").config.save_pretrained(tmp_path)
    state = torch.get_rng_state()
    measured = streams(tmp_path, examples=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(measured.rows) == 8 and all(row["from_identity"] == 0 for row in measured.rows)


def test_what_has_no_connection_that_rskip_knows(model, tmp_path):
    model.save_pretrained(tmp_path)
    with pytest.raises(SettingError, match="carries streams"):
        streams(tmp_path)
