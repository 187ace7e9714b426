"""Translation where PyTorch is not installed, in processes that can't import it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.checkpoint import read_checkpoint, write_checkpoint

MODEL = "checkpoints/multi30k_en_de/2rskip_ln"
# imported by each Python that starts with its folder on the path, workers too
REFUSE = """
import sys

class Refused:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refused)
"""
USE = """
import sys
import numpy
import rskip
from rskip.translation import Translator, Workers

if __name__ == "__main__":
    translator = Translator.from_pretrained(sys.argv[1], device="cpu")
    assert str(translator.device) == translator.device.type == "cpu"
    sentences = ["A man sleeps.", "Two dogs are playing in the snow.", ""]
    found = translator.translate(sentences, beam=5, nbest=2, attention=True, prefixes=["Ein", None, None])
    hypothesis = found[0].hypotheses[0]
    assert isinstance(hypothesis.attention, numpy.ndarray)
    assert hypothesis.attention.shape == (len(hypothesis.tokens) + 1, len(found[0].source_tokens) + 1)
    with Workers(translator.model, 2) as workers:
        shared = translator.translate(sentences, beam=5, nbest=2, prefixes=["Ein", None, None], searcher=workers)
    assert [each.text for each in shared] == [each.text for each in found]
    named = rskip.load("transformer_tiny_2rskip_ln.multi30k.en-de", dtype="int8")
    assert rskip.load(sys.argv[1])("A man sleeps.") == named("A man sleeps.")
    print(translator.to("cpu")("A man sleeps."), named.precision, named("A man sleeps."), sep="|")
    assert "torch" not in sys.modules
"""


@pytest.fixture
def run(root: Path, tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Callable[..., object]:
    """Runs Python where PyTorch can't be imported."""
    (tmp_path / "refuse").mkdir()
    (tmp_path / "refuse/sitecustomize.py").write_text(REFUSE)
    variables = environment(PYTHONPATH=f"{tmp_path / 'refuse'}:{root}")

    def run(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, cwd=root, env=variables, input=text, capture_output=True, text=True)

    return run


def test_the_command_translates_files_with_workers_and_scores(run, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("A man sleeps.\nTwo dogs are playing in the snow.\n")
    translate = ("-m", "rskip", "translate", "--model", MODEL)
    done = run(*translate, "--output", tmp_path / "out", "--workers", 2, "--threads", 2, tmp_path / "two.txt")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "Ein Mann schläft.\nZwei Hunde spielen im Schnee.\n"
    assert "2 lines in " in done.stderr and "(cpu, float32, 2 workers)" in done.stderr
    printed = run(*translate, "--quiet", "--format", "json", "--precision", "int8", text="A man sleeps.\n")
    (line,) = printed.stdout.splitlines()
    assert json.loads(line)["hypotheses"][0]["text"] == "Ein Mann schläft." and printed.stderr == ""


def test_python_translates_with_workers_and_attention(run, root: Path, tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    done = run(tmp_path / "use.py", root / MODEL)
    assert (done.returncode, done.stdout) == (0, "Ein Mann schläft.|int8|Ein Mann schläft.\n"), done.stderr


def test_what_needs_pytorch_says_so_in_one_line(run, root: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(root / MODEL / "model.safetensors")
    checkpoint.config["model"]["connection"] = "denseformer+ln"
    write_checkpoint(tmp_path / "model.safetensors", checkpoint)
    (tmp_path / "model.pt").write_bytes(b"")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/config.json").write_text('{"model_type": "marian"}')
    dictionaries = ["--dictionaries", root / MODEL, "--text", root / MODEL / "text"]
    for model, further in (
        (tmp_path / "model.safetensors", dictionaries),
        (root / MODEL, ["--device", "cuda"]),
        (tmp_path / "model.pt", dictionaries),
        (f"{root / MODEL}:{root / MODEL}", []),
        (tmp_path / "hub", []),
    ):
        done = run("-m", "rskip", "translate", "--quiet", "--model", model, *further, text="A man.\n")
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert " needs torch: install the extra torch with pip install " in done.stderr, done.stderr
    done = run("-m", "rskip", "analyse", "ratios", text="")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_doctor_finds_nothing_wrong_with_a_missing_pytorch(run) -> None:
    printed = run("-m", "rskip", "doctor")
    assert "Traceback" not in printed.stderr and "PyTorch can't be imported" not in printed.stdout
