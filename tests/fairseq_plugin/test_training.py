"""fairseq trains, resumes, parallelises, validates and generates with our models."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import read_checkpoint

pytestmark = pytest.mark.slow
RSKIP = ["--arch", "transformer_rskip_ln_tiny"]


def assert_equal(ours: dict, expected: dict, atol: float = 0) -> None:
    assert ours.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def test_resumed_run_equals_an_unbroken_one(train):
    flags = [*RSKIP, "--dropout", "0.2", "--no-epoch-checkpoints"]
    unbroken = train("unbroken", *flags, "--max-update", "15")
    train("resumed", *flags, "--max-update", "8")  # ends inside an epoch
    assert_equal(train("resumed", *flags, "--max-update", "15"), unbroken)


@pytest.mark.parametrize("criterion", ["label_smoothed_cross_entropy", "rskip_label_smoothed_cross_entropy"])
def test_two_processes_equal_one_with_update_freq_2(criterion, train, tiny, reversed_words, fairseq_program, tmp_path):
    flags = [*RSKIP, "--dropout", "0", "--max-update", "20", "--no-epoch-checkpoints", "--max-tokens", "100"]
    # k_proj.bias has no effect on a softmax: Adam's usual epsilon would blow up the rounding noise of its gradient
    flags += ["--criterion", criterion, "--adam-eps", "1e-4"]
    one = train("one", *flags, "--update-freq", "2")
    process = fairseq_program(
        "torchrun", "--standalone", "--nproc_per_node", "2", str(Path(sys.executable).parent / "fairseq-train"),
        str(reversed_words / "bin"), "--user-dir", "rskip", "--save-dir", str(tmp_path / "two"), *tiny, *flags,
        "--distributed-backend", "gloo", folder=tmp_path,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    assert_equal(read_checkpoint(tmp_path / "two" / "checkpoint_last.pt").model, one, atol=1e-4)


def test_unsupported_flag_of_generation_is_refused(trained, reversed_words, fairseq_program, tmp_path):
    process = fairseq_program(
        "fairseq-generate", str(reversed_words / "bin"), "--user-dir", "rskip", "--path", str(trained), "--cpu",
        "--retain-dropout", folder=tmp_path,
    )  # fmt: skip
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1].startswith("fairseq-generate: error: --retain-dropout is not supported")


def test_checkpointed_activations_train_alike(train):
    flags = [*RSKIP, "--max-update", "6", "--no-epoch-checkpoints"]
    assert_equal(train("checkpointed", *flags, "--checkpoint-activations"), train("plain", *flags), atol=1e-6)


def test_our_criterion_trains_as_fairseqs(train):
    flags = [*RSKIP, "--dropout", "0", "--max-update", "10", "--no-epoch-checkpoints"]
    ours = train("ours", *flags, "--criterion", "rskip_label_smoothed_cross_entropy")
    assert_equal(ours, train("fairseqs", *flags), atol=1e-4)


@pytest.mark.parametrize(
    "flags",
    [
        ["--bf16"],
        ["--bf16", "--criterion", "rskip_label_smoothed_cross_entropy"],
        ["--encoder-layerdrop", "0.1", "--decoder-layerdrop", "0.1"],
        ["--connection", "sas"],
        ["--arch", "transformer_prenorm_tiny", "--attention-dropout", "0.1", "--activation-dropout", "0.1"],
    ],
    ids=" ".join,
)
def test_learns(train, tmp_path, flags):
    train("run", *RSKIP, "--dropout", "0.0", "--lr", "1e-2", "--max-epoch", "30", "--no-epoch-checkpoints", *flags)
    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=True)
    losses = state["extra_state"]["metrics"]
    # A sentence has 2 to 8 words, each one of 20: the best that knows nothing but its own length so far.
    blind = (math.log2(7) + 5 * math.log2(20)) / 6
    nll = dict((key, meter) for _, key, _, meter in losses["valid"])["nll_loss"]
    assert nll["sum"] / nll["count"] < blind - 0.05


@pytest.fixture
def trained(train, tmp_path) -> Path:
    train("trained", *RSKIP, "--max-epoch", "3", "--no-epoch-checkpoints")
    return tmp_path / "trained" / "checkpoint_last.pt"


def test_validates_and_generates(trained, reversed_words, fairseq_program, tmp_path):
    common = [str(reversed_words / "bin"), "--user-dir", "rskip", "--path", str(trained), "--cpu"]
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
    process = fairseq_program(
        "fairseq-interactive", *common, "--beam", "3", folder=tmp_path, text="w1 w2 w3\n"
    )
    assert process.returncode == 0 and "H-0" in process.stdout, process.stderr[-2000:]


def test_hub_interface_scores_what_the_model_says(trained, reversed_words):
    from rskip.fairseq_plugin.model import ConnectionTransformer

    hub = ConnectionTransformer.from_pretrained(
        str(trained.parent), trained.name, str(reversed_words / "bin"), cpu=True, user_dir="rskip"
    )
    model = hub.models[0]
    sentence = hub.binarize("w1 w2 w3 w4")
    hypothesis = hub.generate([sentence], beam=3)[0][0]
    tokens = hypothesis["tokens"].long()
    prefix = torch.cat([tokens[-1:], tokens[:-1]])[None]
    with torch.no_grad():
        logits, extra = model(sentence[None], torch.tensor([len(sentence)]), prefix)
    scores = logits.log_softmax(-1)[0].gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(hypothesis["positional_scores"], scores, rtol=0, atol=1e-4)
    torch.testing.assert_close(hypothesis["attention"], extra["attn"][0][0].T, rtol=0, atol=1e-5)
    assert hub.translate("w1 w2 w3 w4", beam=3) == hub.string(tokens)


def test_own_connection_from_the_example_user_dir(train, root):
    model = train("rezero", *RSKIP, "--user-dir", str(root / "user_dir"), "--connection", "rezero", "--max-update", "5")
    alphas = [tensor for name, tensor in model.items() if name.endswith("_connection.alpha")]
    assert len(alphas) == 2 * 2 + 2 * 3 and all(alpha.item() != 0 for alpha in alphas)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--connection", "2rskp+ln"], "2rskip+ln"),
        (["--encoder-normalize-before"], "--encoder-normalize-before is not supported"),
        (["--connection", "2xskip+bn"], "batch normalisation"),
    ],
)
def test_mistakes_are_one_line_and_status_2(tiny, reversed_words, fairseq_program, tmp_path, flags, message):
    process = fairseq_program(
        "fairseq-train", str(reversed_words / "bin"), "--user-dir", "rskip", "--save-dir", "out", *RSKIP, *tiny,
        *flags, folder=tmp_path,
    )  # fmt: skip
    assert process.returncode == 2, process.stderr[-2000:]
    last = process.stderr.splitlines()[-1]
    assert last.startswith("fairseq-train: error: ") and message in last
    assert "Traceback" not in process.stderr and not list(tmp_path.glob("out/*.pt"))


def test_checkpoint_of_another_architecture_is_refused_and_kept(train, tiny, reversed_words, fairseq_program, tmp_path):
    train("run", *RSKIP, "--max-update", "2", "--no-epoch-checkpoints")
    before = (tmp_path / "run" / "checkpoint_last.pt").read_bytes()
    process = fairseq_program(
        "fairseq-train", str(reversed_words / "bin"), "--user-dir", "rskip", "--save-dir", str(tmp_path / "run"),
        "--arch", "transformer_sas_tiny", *tiny, "--max-update", "4", folder=tmp_path,
    )  # fmt: skip
    assert process.returncode == 2, process.stderr[-2000:]
    assert "checkpoint is of another architecture" in process.stderr.splitlines()[-1]
    assert (tmp_path / "run" / "checkpoint_last.pt").read_bytes() == before
