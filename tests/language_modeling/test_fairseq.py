"""fairseq trains and evaluates our language models, and rskip loads them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("fairseq", reason="needs fairseq: run `rskip setup-fairseq`")

from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator
from fairseq_cli.eval_lm import cli_main as eval_lm
from fairseq_cli.train import cli_main as fairseq_train

import rskip
from fairseq_compat.one_line_errors import UsageError
from rskip.analysis.trace import read_updates
from rskip.cli.main import main
from rskip.language_modeling.data import load_data
from rskip.language_modeling.generator import TextGenerator

SMALL = [
    *("--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "32", "--decoder-attention-heads", "2"),
    *("--decoder-layers", "2", "--tokens-per-sample", "8", "--max-tokens", "64", "--optimizer", "adam", "--lr", "5e-3"),
    *("--max-update", "6", "--cpu", "--no-epoch-checkpoints", "--num-workers", "0", "--dropout", "0.1"),
]
SHAPES = {
    "tiny, rSkip": ["--arch", "transformer_lm_rskip_ln_tiny"],
    "nanoGPT, streams": ["--arch", "transformer_lm_prenorm_nanogpt", "--connection", "hyper"],
    "rotary, grouped": [
        *("--arch", "transformer_lm_prenorm_small", "--connection", "prenorm+rms", "--rotary-theta", "10000"),
        *("--gated-ffn", "--activation-fn", "swish", "--no-biases", "--decoder-key-value-heads", "1"),
    ],
}


@pytest.fixture(scope="module")
def train(prepared: Path) -> Callable[..., None]:
    """Runs fairseq-train here."""

    def run(folder: Path, *flags: str) -> None:
        task = ["--task", "language_modeling", "--user-dir", "rskip", "--save-dir", str(folder)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["fairseq-train", str(prepared), *task, *SMALL, *flags])
            fairseq_train()

    return run


@pytest.mark.parametrize("shape", SHAPES)
def test_fairseqs_perplexity_and_logits_are_ours(
    shape: str,
    train: Callable[..., None],
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    train(tmp_path, *SHAPES[shape])
    path, data = tmp_path / "checkpoint_last.pt", load_data(prepared)
    model = rskip.load(path)
    assert isinstance(model, TextGenerator)
    (theirs,), _ = checkpoint_utils.load_model_ensemble([str(path)])
    tokens = data.splits["valid"][:16].view(2, 8)
    with torch.no_grad():
        assert torch.equal(model(tokens), theirs.eval()(tokens)[0])
    generator = SequenceGenerator([theirs], theirs.decoder.dictionary, beam_size=1, max_len_b=5)
    ((found,), _) = generator.generate([theirs], {"net_input": {"src_tokens": tokens[:, :1]}}, prefix_tokens=tokens)
    assert found["tokens"][: tokens.size(1)].tolist() == tokens[0, : len(found["tokens"])].tolist()
    if "--connection" in SHAPES[shape]:
        assert model.model.connection == SHAPES[shape][3]

    found = []
    original = sys.modules["fairseq_cli.eval_lm"].eval_lm
    monkeypatch.setattr("fairseq_cli.eval_lm.eval_lm", lambda *a, **b: found.append(original(*a, **b)) or found[-1])
    words = ["--path", str(path), "--gen-subset", "valid", "--tokens-per-sample", "8", "--cpu", "--num-workers", "0"]
    monkeypatch.setattr(sys, "argv", ["fairseq-eval-lm", str(prepared), "--user-dir", "rskip", *words])
    eval_lm()
    ours = model.score(data.tokens.decode(data.splits["valid"].tolist()))
    assert found[0]["loss"] == pytest.approx(ours.nats_per_token / math.log(2), rel=1e-6)


OWN = ["--decoder-input-dim", "16", "--decoder-output-dim", "16"]


@pytest.mark.parametrize(
    ("flags", "connection"),
    [
        (["--arch", "transformer_lm", *OWN], "1xskip+ln"),
        (["--arch", "transformer_lm", *OWN, "--decoder-normalize-before", "--layernorm-embedding"], "prenorm+ln"),
        (["--arch", "transformer_lm_gpt", "--share-decoder-input-output-embed"], "prenorm+ln"),
        (["--arch", "transformer_lm_gpt3_small"], "prenorm+ln"),  # learned positions
    ],
)
def test_fairseqs_own_language_models(
    flags: list[str], connection: str, train: Callable[..., None], prepared: Path, tmp_path: Path
) -> None:
    train(tmp_path, *flags)
    model = rskip.load(tmp_path / "checkpoint_last.pt")
    (theirs,), _ = checkpoint_utils.load_model_ensemble([str(tmp_path / "checkpoint_last.pt")])
    tokens = load_data(prepared).splits["valid"][:16].view(2, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), theirs.eval()(tokens)[0], rtol=1e-5, atol=1e-6)
    assert model.model.connection == connection


def test_a_trainings_probe_and_its_own_criterion(train: Callable[..., None], tmp_path: Path) -> None:
    probe = ["--probe-file", str(tmp_path / "probe.jsonl"), "--probe-every", "3"]
    criterion = ["--criterion", "rskip_label_smoothed_cross_entropy", "--label-smoothing", "0.1"]
    train(tmp_path / "probed", "--arch", "transformer_lm_sas_tiny", *probe, *criterion)
    assert [line["update"] for line in read_updates(tmp_path / "probe.jsonl")] == [1, 3, 6]


def test_what_does_not_work_is_told(
    train: Callable[..., None],
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arch = ["--arch", "transformer_lm_rskip_ln_tiny"]
    for flags, told in (
        (["--decoder-key-value-heads", "3"], "--decoder-key-value-heads is 3: expected a divisor of"),
        (["--output-dictionary-size", "9"], "--output-dictionary-size is not supported"),
        (["--connection", "admin"], "--connection is 'admin': expected one without a pass over data"),
        (["--max-target-positions", "4"], "--tokens-per-sample is 8: expected at most 4, the model's positions"),
    ):
        with pytest.raises(UsageError, match=told):
            train(tmp_path / "refused", *arch, *flags)
    lines = ["--sample-break-mode", "eos", "--tokens-per-sample", "64", "--max-target-positions", "32"]
    train(tmp_path / "lines", *arch, *lines)
    train(tmp_path / "trained", *arch)
    words = ["--path", str(tmp_path / "trained/checkpoint_last.pt"), "--cpu", "--tokens-per-sample", "9"]
    with monkeypatch.context() as patch, pytest.raises(UsageError, match="is 9: expected at most 8"):
        patch.setattr(sys, "argv", ["fairseq-eval-lm", str(prepared), "--user-dir", "rskip", *words])
        eval_lm()
    letters = ["--character-embeddings", "--character-filters", "[(1, 8)]"]
    train(tmp_path / "other", "--arch", "transformer_lm", *OWN, *letters)
    assert main(["generate", "--model", str(tmp_path / "other")]) == 2
    assert "character_embeddings=True, which rskip's models don't have" in capsys.readouterr().err
    assert main(["generate", "--model", str(tmp_path / "trained"), "--tokens", str(tmp_path)]) == 2
    assert "its tokens are not in" in capsys.readouterr().err
