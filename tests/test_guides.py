"""The Python examples of the guides run as pasted, in order, in a folder with what the page's reader has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rskip.connections  # noqa: F401  (before a guide, after which the registry is as it was)
from rskip.formulas import registry

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "checkpoints/multi30k_en_de/2rskip_ln"
GUIDES: dict[str, dict[str, Path]] = {  # and the models that the page's commands make
    "own_model": {},
    "adapt": {},
    "compare": {},
    "own_connection": {},
    "connections": {},
    "connection_details": {},
    "own_text": {"model": MODEL},
    "translation": {},
    "serve": {},
    "other_models": {},
    "analysis": {},
    "vision": {},
    "captioning": {},
    "language_models": {},
    "corpora": {},
    "recipes": {},
    "zoo": {"model": MODEL},
    "fairseq": {},
}


@pytest.mark.parametrize("page", GUIDES)
def test_python_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, target in {"checkpoints": ROOT / "checkpoints", **GUIDES[page]}.items():
        (tmp_path / name).symlink_to(target)
    image = pytest.importorskip("PIL.Image")
    for name in ("dog.jpg", "image.png"):
        image.new("RGB", (96, 64), "green").save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_families", dict(registry._families))  # a guide registers a connection
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    scope: dict[str, object] = {"__name__": "guide"}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        code = compile("\n" * text.count("\n", 0, block.start(1)) + block[1], f"docs/{page}.md", "exec")
        try:
            exec(code, scope)
        except ImportError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("page", GUIDES)
def test_examples_that_are_not_run_say_why(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    assert text.count("```py\n") == len(re.findall(r"<!-- not run: .+ -->\n\n```py\n", text))
