"""Translation where PyTorch is not installed, in processes that can't import it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.translation import Translator
from tests.checkpoint.hugging_face.conftest import write_marian
from tests.checkpoint.hugging_face.families import write_nllb

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
import os
import shutil
import sys
from pathlib import Path
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
    drawn = {"sampling": True, "beam": 1, "max_tokens": 1}  # a batch for each
    with Workers(translator.model, 2) as workers:
        shared = translator.translate(["A man sleeps."] * 8, searcher=workers, **drawn)
    assert shared == translator.translate(["A man sleeps."] * 8, **drawn)
    assert len({each.text for each in shared}) > 4
    copied = shutil.copytree(sys.argv[1], "copied")
    moved = Translator.from_pretrained(copied, device="cpu")
    shutil.copy(Path(sys.argv[1], "../1xskip_ln/model.safetensors"), copied)
    shutil.copy(Path(sys.argv[1], "../1xskip_ln/config.json"), copied)
    os.chdir(sys.argv[1])
    try:
        with Workers(moved.model, 1) as workers:
            moved.translate(sentences, searcher=workers)
    except ValueError as error:
        assert "copied/model.safetensors was replaced since the model was loaded" in str(error), error
    else:
        raise AssertionError("the workers have another model")
    named = rskip.load("transformer_tiny_2rskip_ln.multi30k.en-de", dtype="int8")
    assert rskip.load(sys.argv[1])("A man sleeps.") == named("A man sleeps.")
    print(translator.to("cpu")("A man sleeps."), named.precision, named("A man sleeps."), sep="|")
    assert "torch" not in sys.modules
"""

SEVERAL = """
import contextlib
import io
import json
import sys
from rskip.cli.main import main

for arguments in json.loads(sys.argv[1]):
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"A man.\\n"))
    with contextlib.redirect_stderr(io.StringIO()) as error:
        try:
            status = main(arguments)
        except SystemExit as left:
            status = left.code
    print(json.dumps([status, error.getvalue()]))
"""


@pytest.fixture
def run(root: Path, tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Callable[..., object]:
    """Runs Python where PyTorch can't be imported."""
    (tmp_path / "refuse").mkdir()
    (tmp_path / "refuse/sitecustomize.py").write_text(REFUSE)
    variables = environment(PYTHONPATH=f"{tmp_path / 'refuse'}:{root}")

    def run(*arguments: object, text: str = "", cwd: Path = root, **further: str) -> subprocess.CompletedProcess[str]:
        command, env = [sys.executable, *map(str, arguments)], variables | further
        return subprocess.run(command, cwd=cwd, env=env, input=text, capture_output=True, text=True)

    return run


@pytest.fixture
def errors(run: Callable[..., Any]) -> Callable[..., list[str]]:
    """The one line that each of several commands ends with, in one process."""

    def errors(*commands: list[object], **further: str) -> list[str]:
        words = [[str(word) for word in command] for command in commands]
        done = run("-c", SEVERAL, json.dumps(words), **further)
        assert done.returncode == 0, done.stderr
        statuses, printed = zip(*map(json.loads, done.stdout.splitlines()), strict=True)
        assert set(statuses) == {2} and {text.count("\n") for text in printed} == {1}, printed
        return list(printed)

    return errors


def translate(model: object) -> list[object]:
    return ["translate", "--quiet", "--model", model]


def beside(root: Path) -> list[object]:
    """The flags for what lies beside a model."""
    return ["--dictionaries", root / MODEL, "--text", root / MODEL / "text"]


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
    done = run(tmp_path / "use.py", root / MODEL, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Ein Mann schläft.|int8|Ein Mann schläft.\n"), done.stderr


def test_folders_of_hugging_face_translate(run, tmp_path: Path) -> None:
    """Opus-MT's and NLLB's layouts, and a group model's."""
    for write, languages in ((write_marian, ("en", "de")), (write_nllb, ("eng_Latn", "deu_Latn"))):
        folder = write(tmp_path / write.__name__)
        if write is write_marian:  # as the Hub has it
            torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
            (folder / "model.safetensors").unlink()
        flags = ["--source-lang", languages[0], "--target-lang", languages[1], "--max-len-a", 0, "--max-len-b", 12]
        done = run("-m", "rskip", "translate", "--quiet", "--model", folder, *flags, text="the dog runs\n")
        translator = Translator.from_pretrained(folder, source_language=languages[0], target_language=languages[1])
        (expected,) = translator.in_torch().translate(["the dog runs"], beam=5, max_length_a=0, max_length_b=12)
        assert (done.returncode, done.stdout) == (0, f"{expected.text}\n"), done.stderr


def test_what_needs_pytorch_says_so_in_one_line(errors, root: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(root / MODEL / "model.safetensors")
    config = {**checkpoint.config, "model": {**checkpoint.config["model"], "connection": "denseformer+ln"}}
    write_checkpoint(tmp_path / "model.safetensors", replace(checkpoint, config=config))
    (tmp_path / "model.pt").write_bytes(b"\x80\x02")
    *found, train, _ = errors(
        [*translate(tmp_path / "model.safetensors"), *beside(root)],
        [*translate(root / MODEL), "--device", "cuda"],
        [*translate(tmp_path / "model.pt"), *beside(root)],
        translate(f"{root / MODEL}:{root / MODEL}"),
        ["train", "data"],
        ["analyse", "ratios"],
    )
    assert all(" needs torch: install the extra torch with pip install " in line for line in found), found
    assert train.startswith("rskip train: error: rskip train needs torch: install the extra fairseq with pip install ")


def test_what_pytorch_would_not_help_names_the_fault(errors, root: Path, tmp_path: Path) -> None:
    """One line without the advice to install PyTorch: the fault is in the files."""
    checkpoint = read_checkpoint(root / MODEL / "model.safetensors")
    invalid, cut, lacking = (tmp_path / f"{name}.safetensors" for name in ("invalid", "cut", "lacking"))
    config = {**checkpoint.config, "model": {**checkpoint.config["model"], "connection": "0rskip+ln"}}
    write_checkpoint(invalid, replace(checkpoint, config=config))
    cut.write_bytes((root / MODEL / "model.safetensors").read_bytes()[:-4])
    del checkpoint.model["encoder.layers.1.fc2.bias"]
    write_checkpoint(lacking, checkpoint)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text('{"model_type": "bert"}')
    faults = {
        lacking: f"{lacking}: the weights lack encoder.layers.1.fc2.bias, but the settings describe",
        invalid: f"{invalid}: encoder_connection is '0rskip+ln'",
        cut: "truncated or damaged",
        tmp_path / "bert": "model_type is 'bert': expected a translation model",
    }
    found = errors(*([*translate(model), *([] if model.is_dir() else beside(root))] for model in faults))
    for line, fault in zip(found, faults.values(), strict=True):
        assert fault in line and "install the extra" not in line, line


def test_missing_kernels_are_named_with_both_remedies(errors) -> None:
    either, one = errors(translate(MODEL), [*translate(MODEL), "--precision", "int8"], RSKIP_NATIVE="off")
    assert "needs the compiled kernels or torch: RSKIP_NATIVE=off; or install the extra torch with " in either
    assert "int8 can't be used: RSKIP_NATIVE=off; use float32 or bfloat16" in one and "torch" not in one


def test_doctor_finds_nothing_wrong_with_a_missing_pytorch(run) -> None:
    printed = run("-m", "rskip", "doctor")
    assert "Traceback" not in printed.stderr and "PyTorch can't be imported" not in printed.stdout
