"""What a user reads about a corpus before choosing it."""

from __future__ import annotations

from rskip.corpora import describe
from rskip.corpora.corpus import (
    CleaningOptions,
    ParallelText,
    PrepareDefaults,
    PublishedCorpus,
    Text,
    UpstreamFile,
)


def text(name: str, file: UpstreamFile, **counts: int) -> ParallelText:
    sides = {language: Text(file=file, member=language) for language in ("en", "de")}
    return ParallelText(name=name, sides=sides, **counts)


def test_published_corpus() -> None:
    archive = UpstreamFile(name="train.tgz", url="https://example.org/train.tgz", size=1_250_000_000)
    tests = UpstreamFile(name="test.tgz", url="https://example.org/test.tgz")
    cleaning = CleaningOptions(
        entities="unescape", remove_non_printing=True, empty=True, max_words=80, max_ratio=1.5, duplicates=True
    )
    corpus = PublishedCorpus(
        name="tiny-en-de",
        source="en",
        target="de",
        homepage="https://example.org",
        licence="free",
        citation="nobody",
        defaults=PrepareDefaults(size=8_000, cleaning=cleaning),
        folder="tiny",
        splits={
            "train": (text("news", archive, sentences=1_000), text("ted", archive, sentences=45, except_every=10)),
            "valid": (text("ted", archive, sentences=45, every=10),),
            "test": (text("news13", tests, sentences=3), text("news14", tests)),
        },
    )
    assert describe(corpus).split("\n  ") == [
        "tiny-en-de: https://example.org",
        "terms: free",
        "source: nobody",
        "languages: en to de",
        "train: 1,041 pairs: news, ted (all but 1 pair in 10)",
        "valid: 4 pairs: ted (1 pair in 10)",
        "test: news13, news14",
        "prepared with: subwords bpe, size 8000, remove_non_printing True, entities unescape, empty True, "
        "max_words 80, max_ratio 1.5, duplicates True",
        "files: over 1.2 GB: train.tgz (1.2 GB), test.tgz (unknown)",
    ]
