"""The examples run, and print what their readers see."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_a_gpt_learns_with_each_connection(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("svg")
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("The quick brown fox jumps over the lazy dog. " * 400)
    monkeypatch.setattr("sys.argv", ["gpt.py", "text"])
    example = runpy.run_path(str(EXAMPLES / "gpt.py"))
    example["main"].__globals__.update(UPDATES=30, EVERY=10, LAYERS=2)
    example["main"]()
    losses = re.findall(r"^(\S+) +loss (\d\.\d+)", capsys.readouterr().out, re.MULTILINE)
    assert [name for name, _ in losses] == list(example["CONNECTIONS"])
    assert all(float(loss) < 0.8 * math.log(28) for _, loss in losses)  # 28 characters
    assert all(f"<!-- {name} -->" in Path("gpt.svg").read_text() for name, _ in losses)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path, monkeypatch):
    for library in ("transformers", "sacremoses"):
        pytest.importorskip(library)
    monkeypatch.chdir(EXAMPLES)
    scope = {"__name__": "notebook"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("".join(cell["source"]), path.name, "exec"), scope)
            assert printed.getvalue() == "".join("".join(each["text"]) for each in cell["outputs"])
