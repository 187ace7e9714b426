"""How well texts are split into sentences, by rskip and by three libraries.

Five successive lines of a corpus, each one sentence, are joined by spaces; lines without final punctuation are left
out. A boundary is right where one line ended. Precision counts some true boundaries inside lines as wrong, recall is
exact. Appends to study/results/benchmarks/sentences.jsonl; libraries that aren't installed are left out:

    pip install sentencex pysbd sentence-splitter
    python benchmarks/sentences.py LANGUAGE=FILE...      # one sentence per line; may be compressed by gzip
"""

from __future__ import annotations

import gzip
import html
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from measuring.record import append_record

from rskip.text.sentences import SplitText

LINES = 5  # per text


def systems(language: str) -> dict[str, Callable[[str], list[str]]]:
    """What splits a text. A library that doesn't know the language splits as it does English."""
    found: dict[str, Callable[[str], list[str]]] = {"rskip": lambda text: SplitText(text).sentences}
    known = language if language in ("de", "en", "fr") else "en"
    with suppress(ImportError):
        import sentencex

        found["sentencex"] = lambda text: sentencex.segment(language, text)
    with suppress(ImportError):
        import pysbd

        found["pysbd"] = pysbd.Segmenter(language=known, clean=False).segment
    with suppress(ImportError):
        import sentence_splitter

        found["sentence-splitter"] = sentence_splitter.SentenceSplitter(language=known).split
    return found


def ends(text: str, sentences: list[str]) -> set[int]:
    """The places in the text where sentences end."""
    found, at = set(), 0
    for sentence in filter(None, map(str.strip, sentences)):
        if (place := text.find(sentence, at)) >= 0:
            at = place + len(sentence)
            found.add(at)
    return found


def measure(language: str, path: Path) -> dict[str, Any]:
    """Precision and recall of each system."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = [html.unescape(line.strip()) for line in file]
    lines = [line for line in lines if line.endswith((*'.!?"”»…',)) and any(map(str.isalpha, line))]
    row: dict[str, Any] = {"file": path.name, "language": language, "sentences": len(lines)}
    for name, split in systems(language).items():
        right = made = wanted = 0
        for first in range(0, len(lines) - LINES + 1, LINES):
            part = lines[first : first + LINES]
            text = " ".join(part)
            true, found = ends(text, part), ends(text, split(text))
            right, made, wanted = right + len(true & found), made + len(found), wanted + len(true)
        row[name] = {"precision": round(right / made, 4), "recall": round(right / wanted, 4)}
    return row


if __name__ == "__main__":
    if not sys.argv[1:] or not all("=" in each for each in sys.argv[1:]):
        sys.exit(__doc__)
    rows = [measure(language, Path(path)) for language, _, path in (each.partition("=") for each in sys.argv[1:])]
    append_record(Path("study/results/benchmarks/sentences.jsonl"), "sentences", {"texts": rows})
    print(*rows, sep="\n")
