"""Small programs (fake_fairseq/) in fairseq's place, and a corpus that was prepared with them."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from rskip.corpora import PrepareOptions, find_corpus, prepare
from rskip.text import TextPipeline
from rskip.translation.generated import read_lines

SENTENCES, SPOILT = 200, 26  # of the test set: how many there are, and how many are translated wrongly

PYTHON = sys.executable
# pip's way to begin a script: a shebang can't name an interpreter in a folder with a space
RUN_BY_PYTHON = f"""#!/bin/sh
'''exec' "{PYTHON}" "$0" "$@"
' '''
"""


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bin/ (the programs), a prepared corpus, a checkpoint, and what fairseq-generate will print."""
    root = tmp_path_factory.mktemp("fakes")
    (root / "bin").mkdir()
    for source in (Path(__file__).parent / "fake_fairseq").glob("*.py"):
        program = root / "bin" / f"fairseq-{source.stem}"
        program.write_text(f"{RUN_BY_PYTHON}{source.read_text()}")
        program.chmod(0o755)
    checks = root / "bin" / "python"  # fairseq's parser refuses nothing
    checks.write_text("#!/bin/sh\necho {}\n")
    checks.chmod(0o755)
    options = PrepareOptions(pairs=300, size=80)
    prepare(find_corpus("numbers-en-de"), root / "prepared", options=options)
    settings = Namespace(arch="transformer_rskip_ln_tiny")
    state = {"cfg": {"model": settings}, "model": {"weight": torch.linspace(0, 1, 5)}}
    torch.save(state, root / "checkpoint.pt")
    pipeline = TextPipeline.load(root / "prepared" / "text")
    record = json.loads((root / "prepared" / "corpus.json").read_text())
    for language in ("en", "de"):
        reference = root / "prepared" / "reference" / f"test.{language}"
        reference.write_text("\n".join(read_lines(reference)[:SENTENCES]) + "\n")
        record["sizes"][f"reference/test.{language}"] = reference.stat().st_size
    (root / "prepared" / "corpus.json").write_text(json.dumps(record))
    lines = []
    for index, sentence in enumerate(read_lines(root / "prepared" / "reference" / "test.de")):
        tokens = pipeline.encode_target(sentence)
        lines += [f"T-{index}\t{tokens}", f"H-{index}\t-0.1\t{tokens if index >= SPOILT else 'x'}"]
    (root / "translations.txt").write_text("\n".join(reversed(lines)) + "\n")
    return root


@pytest.fixture
def faked(fakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, where fairseq's programs are the fakes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(fakes / "bin" / "python"))
    monkeypatch.setenv("FAKE_CHECKPOINT", str(fakes / "checkpoint.pt"))
    monkeypatch.setenv("FAKE_TRANSLATIONS", str(fakes / "translations.txt"))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr("rskip.machine.device.bfloat16_is_slow", lambda device: False)
    return tmp_path
