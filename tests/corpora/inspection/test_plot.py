"""The plot of an inspection."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from rskip.corpora.inspection import inspect_data
from rskip.corpora.inspection.plot import draw


def comments_of(svg: str) -> str:
    """Text of an SVG picture, which matplotlib keeps in comments beside the outlines of the letters."""
    return "\n".join(comment.strip() for comment in re.findall(r"<!--(.*?)-->", svg, flags=re.DOTALL))


def test_svg_says_what_is_drawn_and_is_the_same_again(data, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    found = inspect_data(data)
    for name in ("one.svg", "two.svg"):
        draw(found, tmp_path / name)
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert (tmp_path / "two.svg").read_text(encoding="utf-8") == svg
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    text = comments_of(svg)
    for words in (
        "data-bin (en → de), train: 5 pairs",
        "en: mean 2.4, median 3, longest 5",
        "de: mean 2.6, median 3, longest 4",
        "en: 4 types in train",
        "Coverage of train",
    ):
        assert words in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data-bin", "one.svg", "two.svg"]


def test_mistakes(data, tmp_path, monkeypatch, write_split):
    write_split(tmp_path / "empty", "train", [])
    with pytest.raises(ValueError, match="empty: train has no sentences to plot"):
        draw(inspect_data(tmp_path / "empty"), tmp_path / "picture.svg")
    assert not list(tmp_path.glob("*picture*"))
