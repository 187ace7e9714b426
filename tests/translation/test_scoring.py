"""A translated split and its scores: with compound-split BLEU if papers report it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rskip.text import TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding
from rskip.translation.metrics import score
from rskip.translation.scoring import read_translations

REFERENCES = ["Die Nord-Süd-Achse bleibt neu.", "Ja!"]
HYPOTHESES = ["Die Nord-Süd-Achse ist neu.", "Ja!"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder as far as scoring needs it, and generated.txt beside it."""
    folder = tmp_path / "data-bin"
    pipeline = TextPipeline(
        TextConfig(source_language="en", target_language="de"), BytePairEncoding("#version: 0.2\nH u\n")
    )
    pipeline.save(folder / "text")
    (folder / "reference").mkdir()
    (folder / "reference" / "test.de").write_text("\n".join(REFERENCES) + "\n")
    (folder / "reference" / "test.en").write_text("The north-south axis stays new.\nYes!\n")
    lines = []
    for number, (hypothesis, reference) in enumerate(zip(HYPOTHESES, REFERENCES, strict=True)):
        tokens = [pipeline.encode_target(sentence) for sentence in (reference, hypothesis)]
        lines += [f"T-{number}\t{tokens[0]}\n", f"H-{number}\t-0.1\t{tokens[1]}\n"]
    (tmp_path / "generated.txt").write_text("".join(lines))
    return folder


@pytest.mark.parametrize(
    ("corpus", "split"), [("wmt14-en-de", True), ("wmt14-de-en", False), ("multi30k-en-de", False)]
)
def test_compounds_are_split_where_papers_report_it(data: Path, corpus: str, split: bool) -> None:
    (data / "corpus.json").write_text(json.dumps({"corpus": corpus}))
    translations = read_translations(data.parent / "generated.txt", data=data, split="test")
    assert translations.hypotheses == HYPOTHESES
    expected = score(HYPOTHESES, REFERENCES, compound_split=split)
    found = translations.score()
    assert {name: found[name] for name in expected} == expected
    assert ("compound_split_bleu" in found) == split
