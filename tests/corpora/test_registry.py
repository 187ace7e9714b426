"""The registry's values for corpora, compared with the files if they are available."""

from __future__ import annotations

import re

import pytest

from rskip.corpora import CORPORA, PrepareOptions, find_corpus
from rskip.corpora.corpus import SPLITS, CleaningOptions, PublishedCorpus

PUBLISHED = {corpus.name: corpus for corpus in CORPORA.values() if isinstance(corpus, PublishedCorpus)}
MOSES_RATIO, FAIRSEQ_RATIO = 9, 1.5


def test_corpora_are_described_whole() -> None:
    assert {name.rsplit("-", 2)[0] for name in CORPORA} == {"multi30k", "iwslt14", "iwslt15", "wmt14", "numbers"}
    for name, corpus in CORPORA.items():
        assert name == corpus.name and name.endswith(f"-{corpus.source}-{corpus.target}")
        assert corpus.homepage and corpus.licence and corpus.citation
    for published in PUBLISHED.values():
        splits = list(published.splits)
        assert splits == [*SPLITS, *(f"test{number}" for number in range(1, len(splits) - 2))]
        for file in published.upstream_files():
            assert file.url.startswith("https://") and file.url.endswith(f"/{file.name}")
        for text in published.texts():
            assert text.file.name.endswith((".tgz", ".tar")) == (text.member is not None)


@pytest.mark.parametrize(
    ("name", "size", "cleaning"),
    [
        # What the committed models were trained on must not change.
        ("multi30k-en-de", 10_000, {}),
        ("multi30k-fr-en", 10_000, {}),
        ("numbers-en-de", 500, {}),
        ("iwslt15-en-vi", 8_000, {"empty": True, "max_words": 250, "max_ratio": MOSES_RATIO}),
        ("iwslt14-en-de", 10_000, {"empty": True, "max_words": 175, "max_ratio": FAIRSEQ_RATIO}),
        (
            "wmt14-de-en",
            40_000,
            {"remove_non_printing": True, "empty": True, "max_words": 250, "max_ratio": MOSES_RATIO}
            | {"duplicates": True, "leaks": True},
        ),
        (
            "wmt14-en-fr",
            40_000,
            {"remove_non_printing": True, "empty": True, "max_words": 175, "max_ratio": FAIRSEQ_RATIO}
            | {"duplicates": True, "leaks": True},
        ),
    ],
)
def test_defaults(name: str, size: int, cleaning: dict[str, object]) -> None:
    corpus = CORPORA[name]
    assert corpus.defaults.cleaning == CleaningOptions(**cleaning)  # type: ignore[arg-type]
    assert corpus.defaults.tokenised == name.startswith("iwslt15")
    resolved = PrepareOptions().resolve(corpus).to_plain()
    generated = {"pairs": 30_000, "seed": 1} if name.startswith("numbers") else {}
    assert resolved == {"subwords": "bpe", "size": size, **generated, **cleaning}


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("multi30k-en-ed", "did you mean 'multi30k-en-de'? "),
        ("MULTI30K-en-de", "did you mean 'multi30k-en-de'? "),
        ("wmt-en-de", "did you mean 'wmt14-en-de'? "),
        ("numbers", "did you mean 'numbers-en-de' or 'numbers-de-en'? "),
        ("xyz", ""),
    ],
)
def test_unknown_corpus_names_the_nearest(typed: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"unknown corpus '{typed}': {nearest}`rskip prepare --list`")):
        find_corpus(typed)
