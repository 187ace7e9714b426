"""What the registry says about the corpora, held against the files where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.corpora import CORPORA, find_corpus
from rskip.corpora.corpus import SPLITS, PublishedCorpus
from rskip.corpora.fetch import fetch
from rskip.corpora.sentences import read_pairs

PUBLISHED = [corpus for corpus in CORPORA.values() if isinstance(corpus, PublishedCorpus)]


def test_names() -> None:
    assert set(CORPORA) == {
        "multi30k-en-de",
        "multi30k-de-en",
        "multi30k-en-fr",
        "multi30k-fr-en",
        "numbers-en-de",
        "numbers-de-en",
    }
    for name, corpus in CORPORA.items():
        assert name == corpus.name
        assert name.endswith(f"-{corpus.source}-{corpus.target}")
        assert corpus.homepage and corpus.licence and corpus.citation


@pytest.mark.parametrize("corpus", PUBLISHED, ids=lambda corpus: corpus.name)
def test_published_corpora_are_described_whole(corpus: PublishedCorpus) -> None:
    assert set(corpus.splits) == set(SPLITS)
    for file in corpus.upstream_files():
        assert file.url.startswith("https://") and file.url.endswith(f"/{file.name}")
        assert len(bytes.fromhex(file.sha256)) == 32


def test_directions_share_their_files() -> None:
    there, back = CORPORA["multi30k-en-de"], CORPORA["multi30k-de-en"]
    assert isinstance(there, PublishedCorpus) and isinstance(back, PublishedCorpus)
    assert set(there.upstream_files()) == set(back.upstream_files())
    assert there.folder == back.folder
    assert there.upstream_files()[0].name == "train.en.gz"
    assert back.upstream_files()[0].name == "train.de.gz"


@pytest.mark.parametrize("target", ["de", "fr"])
def test_multi30k_is_what_the_registry_says(shared: Path, target: str) -> None:
    corpus = CORPORA[f"multi30k-en-{target}"]
    assert isinstance(corpus, PublishedCorpus)
    files = fetch(corpus, mirror=str(shared / "data/multi30k"))
    for split, count in {"train": 29_000, "valid": 1_014, "test": 1_000}.items():
        (part,) = corpus.splits[split]
        pair = (files[part.files["en"]], files[part.files[target]])
        assert sum(1 for _ in read_pairs(*pair, sentences=part.sentences)) == count


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [("multi30k-en-ed", "multi30k-en-de"), ("numbers", "numbers-"), ("x", "multi30k|numbers")],
)
def test_unknown_corpus_names_the_nearest(typed: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown corpus '{typed}': did you mean '({nearest})"):
        find_corpus(typed)
