"""fairseq's programs at work with a stock `transformer` and all patches; fairseq-generate as a shell runs it, the rest
forked from a process that has imported fairseq. Each patch's own test sees the symptom without it.

tests/fairseq_plugin/test_training.py has fairseq-validate, test_line_ends.py fairseq-score, and
tests/experiments/test_published_weights.py fairseq-interactive."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

# 2 updates of a tiny model; dropout 0, so that runs can be compared
MODEL = [
    "bin", "--arch", "transformer", "--encoder-layers", "2", "--decoder-layers", "1", "--dropout", "0",
    "--encoder-embed-dim", "8", "--decoder-embed-dim", "8", "--encoder-ffn-embed-dim", "16",
    "--decoder-ffn-embed-dim", "16", "--encoder-attention-heads", "2", "--decoder-attention-heads", "2",
]  # fmt: skip
NO_WORKERS = ["--num-workers", "0"]  # fairseq has one that loads data: to start and end it can take seconds
TRAIN = [
    *MODEL, "--optimizer", "adam", "--lr", "0.001", "--max-tokens", "200", "--cpu", "--log-format", "json",
    "--log-interval", "1", "--no-epoch-checkpoints", *NO_WORKERS,
]  # fmt: skip

pytestmark = pytest.mark.slow


def losses(process: subprocess.CompletedProcess[str]) -> list[float]:
    """Training loss of each update, from the log."""
    assert process.returncode == 0, process.stderr
    log = process.stdout + process.stderr
    return [float(loss) for loss in re.findall(r'train_inner \| {[^}]*"loss": "([\d.]+)"', log)]


@pytest.fixture(scope="module")
def checkpoint(reversed_words: Path, fairseq_program) -> str:
    """A checkpoint after 2 updates, with fairseq's usual loading of data."""
    flags = ["--max-update", "2", "--save-dir", "trained", "--num-workers", "1"]
    process = fairseq_program("fairseq-train", *TRAIN, *flags, folder=reversed_words)
    assert len(losses(process)) == 2
    return "trained/checkpoint_last.pt"


def test_generate(own_process, reversed_words, checkpoint):
    arguments = ["bin", "--path", checkpoint, "--cpu", "--beam", "2", "--max-len-b", "10"]
    process = own_process("fairseq-generate", *arguments, folder=reversed_words)
    assert process.returncode == 0, process.stderr
    assert sorted(map(int, re.findall(r"^H-(\d+)\t", process.stdout, re.MULTILINE))) == list(range(20))


def test_resume_continues_where_training_stopped(fairseq_program, reversed_words, checkpoint):
    """2 updates, then 2 more, have the losses of 4 in one go."""
    unbroken = fairseq_program("fairseq-train", *TRAIN, "--max-update", "4", "--no-save", folder=reversed_words)
    resumed = fairseq_program(
        "fairseq-train", *TRAIN, "--max-update", "4", "--restore-file", checkpoint, "--save-dir", "resumed",
        folder=reversed_words,
    )  # fmt: skip
    assert len(losses(unbroken)) == 4
    assert losses(resumed) == losses(unbroken)[2:]


def test_hub_interface_loads_and_translates(python, reversed_words, checkpoint):
    process = python(
        f"""
        from fairseq.models.transformer import TransformerModel
        folder = {str(reversed_words)!r}
        hub = TransformerModel.from_pretrained(folder, {checkpoint!r}, folder + "/bin")
        print(hub.translate(["w1 w2 w3", "w4"], beam=2, max_len_b=5) is not None, len(hub.models))
        """
    )
    assert process.stdout.splitlines()[-1] == "True 1", process.stderr


def test_two_processes_equal_one_with_twice_the_batches(fairseq_program, reversed_words):
    """Without torchrun, under fairseq's default --ddp-backend; tests/translation/test_distributed_training.py has
    torchrun."""
    train = [*TRAIN, "--max-update", "2", "--no-save"]
    one = fairseq_program("fairseq-train", *train, "--update-freq", "2", folder=reversed_words)
    train += ["--distributed-backend", "gloo", "--distributed-world-size", "2"]
    two = fairseq_program("fairseq-train", *train, folder=reversed_words, CUDA_VISIBLE_DEVICES="")
    assert len(losses(two)) == 2
    assert losses(two) == pytest.approx(losses(one), abs=2e-3)
    assert "training on 2 devices" in two.stdout + two.stderr


HYDRA_CONFIGURATION = """\
common: {{cpu: true}}
task: {{_name: translation, data: {folder}/bin}}
model: {{_name: transformer_iwslt_de_en, encoder_embed_dim: 8, decoder_embed_dim: 8}}
criterion: {{_name: cross_entropy}}
optimizer: {{_name: adam, adam_betas: "(0.9,0.98)"}}
lr_scheduler: {{_name: fixed}}
optimization: {{lr: [0.001], max_update: 2}}
dataset: {{max_tokens: 200, num_workers: 0}}
checkpoint: {{save_dir: {folder}/by-hydra, no_epoch_checkpoints: true}}
distributed_training: {{distributed_world_size: 1}}
"""


def test_hydra_train_with_an_argparse_architecture(fairseq_program, reversed_words):
    configuration = reversed_words / "configuration" / "reverse.yaml"
    configuration.parent.mkdir()
    configuration.write_text(HYDRA_CONFIGURATION.format(folder=reversed_words))
    process = fairseq_program(
        "fairseq-hydra-train", "--config-dir", str(configuration.parent), "--config-name", "reverse",
        "hydra.run.dir=by-hydra", folder=reversed_words,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "done training" in process.stdout
    assert (reversed_words / "by-hydra" / "checkpoint_last.pt").exists()
    process = fairseq_program(
        "fairseq-hydra-train", "--config-dir", str(configuration.parent), "--config-name", "reverse",
        "+model.encoder_layerz=1", folder=reversed_words,
    )  # fmt: skip
    line = "model.encoder_layerz is unknown to the architecture transformer_iwslt_de_en: did you mean encoder_layers?"
    assert process.returncode == 2 and process.stderr.splitlines()[-1] == f"fairseq-hydra-train: error: {line}"
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("+optimization.max_updat=5", "optimization.max_updat is unknown: did you mean max_update?"),
        ("optimizaton.max_update=5", "optimizaton is unknown: did you mean optimization?"),
        ("dataset.max_tokens=abc", "dataset.max_tokens is abc: expected a whole number"),
        ("task._name=translatoin", "task is translatoin, which is unknown: did you mean translation?"),
        ("optimizer.adam_beta=1", "optimizer.adam_beta is unknown: did you mean adam_betas?"),
        ("task.left_pad_source=1", "task.left_pad_source is not in the configuration file: write +task.left_pad_source"
         " to add it"),
        ("task=translation", "task=translation can't replace the group of the configuration file: write "
         "task._name=translation"),
    ],
)  # fmt: skip
def test_wrong_settings_of_hydra_train_end_in_one_line(fairseq_program, reversed_words, override, line):
    configuration = HYDRA_CONFIGURATION.format(folder=reversed_words).replace("cpu: true", "cpu: true, user_dir: rskip")
    (reversed_words / "wrong.yaml").write_text(configuration)
    process = fairseq_program(
        "fairseq-hydra-train", "--config-dir", str(reversed_words), "--config-name", "wrong", override,
        folder=reversed_words,
    )  # fmt: skip
    assert process.returncode == 2 and process.stderr.splitlines()[-1] == f"fairseq-hydra-train: error: {line}"
    assert "Traceback" not in process.stderr


def test_language_model_trains_and_evaluates(fairseq_program, tmp_path, reversed_words):
    prefixes = ["--trainpref", "train.a", "--validpref", "valid.a", "--destdir", str(tmp_path / "bin")]
    process = fairseq_program("fairseq-preprocess", "--only-source", *prefixes, folder=reversed_words)
    assert process.returncode == 0, process.stderr
    process = fairseq_program(
        "fairseq-train", "bin", "--task", "language_modeling", "--arch", "transformer_lm",
        "--decoder-layers", "1", "--decoder-embed-dim", "8", "--decoder-attention-heads", "2",
        "--decoder-ffn-embed-dim", "16",
        "--optimizer", "adam", "--lr", "0.001", "--max-tokens", "200", "--tokens-per-sample", "20",
        "--sample-break-mode", "eos",
        "--max-update", "2", "--cpu", "--no-epoch-checkpoints", *NO_WORKERS, folder=tmp_path,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    process = fairseq_program(
        "fairseq-eval-lm", "bin", "--path", "checkpoints/checkpoint_last.pt", "--gen-subset", "valid",
        "--cpu", "--max-tokens", "200", "--tokens-per-sample", "20", *NO_WORKERS, folder=tmp_path,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert re.search(r"Perplexity: [\d.]+", process.stdout + process.stderr)


def test_levenshtein_transformer_trains_and_generates(fairseq_program, reversed_words):
    shared = ["--task", "translation_lev", "--cpu", "--max-tokens", "200", *NO_WORKERS]
    process = fairseq_program(
        "fairseq-train", *MODEL, *shared, "--arch", "levenshtein_transformer", "--criterion", "nat_loss",
        "--noise", "random_delete", "--early-exit", "1,1,1", "--optimizer", "adam", "--lr", "0.001",
        "--max-update", "2", "--save-dir", "edits", "--no-epoch-checkpoints", folder=reversed_words,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "fall back to CPU version" not in process.stdout
    process = fairseq_program(
        "fairseq-generate", "bin", *shared, "--path", "edits/checkpoint_last.pt", "--iter-decode-max-iter", "2",
        folder=reversed_words,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert len(re.findall(r"^H-", process.stdout, re.MULTILINE)) == 20
