"""Complete preparations of the available corpora. Generated text replaces missing files."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from rskip.corpora import PrepareOptions, find_corpus, prepare
from rskip.corpora.corpus import ParallelText, PublishedCorpus, Text
from rskip.corpora.inspection import inspect_data
from rskip.text import TextPipeline

pytestmark = pytest.mark.slow


def prepared(
    corpus: PublishedCorpus, folder: Path, *, mirror: Path, options: PrepareOptions | None = None
) -> dict[str, Any]:
    """Prepares without workers, whose start takes longer than what they save here; gives the record."""
    assert prepare(corpus, folder, mirror=str(mirror), workers=1, options=options)
    return json.loads((folder / "corpus.json").read_text())


def stand_in(corpus: PublishedCorpus, counts: Mapping[str, int]) -> PublishedCorpus:
    """The corpus with other counts of sentences, and with files of any size and sum."""

    def replace(parallel: ParallelText) -> ParallelText:
        sides = {
            language: dataclasses.replace(text, file=dataclasses.replace(text.file, size=None, sha256=None))
            for language, text in parallel.sides.items()
        }
        sentences = counts.get(parallel.name, parallel.sentences)
        return dataclasses.replace(parallel, sides=sides, sentences=sentences)

    splits = {split: tuple(map(replace, texts)) for split, texts in corpus.splits.items()}
    return dataclasses.replace(corpus, splits=splits)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "cache"))


def test_multi30k_is_what_the_committed_models_were_trained_on(shared: Path, root: Path, tmp_path: Path) -> None:
    """The models' data were prepared by one process, or by several: their sums tell no difference."""
    folder = tmp_path / "multi30k"
    record = prepared(find_corpus("multi30k-en-de"), folder, mirror=shared / "data/multi30k")
    assert record["sentences"] == {"train": 29_000, "valid": 1_014, "test": 1_000}
    model = root / "checkpoints/multi30k_en_de/2rskip_ln"
    trained = json.loads((root / "study/results/runs/multi30k_en_de/2rskip_ln/1.json").read_text())
    files = json.dumps(record["files"], sort_keys=True)
    assert hashlib.sha256(files.encode()).hexdigest() == trained["data"]["files_sha256"]
    for name in ("dict.en.txt", "dict.de.txt", "text/codes.bpe", "text/pipeline.json"):
        assert (folder / name).read_bytes() == (model / name).read_bytes()
    statistics = inspect_data(folder, examples=300).statistics
    assert statistics["corpus"]["name"] == "multi30k-en-de" and statistics["joint_dictionary"]
    assert [side["unknown"] for side in statistics["splits"]["train"]["sides"].values()] == [0, 0]
    pipeline = TextPipeline.load(folder / "text")
    back = pipeline.reversed()
    english, german = (read(shared / f"data/multi30k/train.{language}.gz") for language in ("en", "de"))
    for example in statistics["examples"]:
        row = example["number"] - 1
        tokens = pipeline.encode(english[row]), pipeline.encode_target(german[row])
        assert example["lengths"] == [len(side.split()) for side in tokens]
        assert (example["source"], example["target"]) == (
            back.decode(tokens[0]),
            pipeline.decode(tokens[1]),
        )


def tgz(path: Path, members: Mapping[str, str]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            content = text.encode()
            information = tarfile.TarInfo(name)
            information.size = len(content)
            archive.addfile(information, io.BytesIO(content))


def sgm(kind: str, sentences: list[str]) -> str:
    segments = "".join(f'<seg id="{number}">{escape(text)}</seg>\n' for number, text in enumerate(sentences, start=1))
    return f'<{kind} setid="newstest2014"><doc docid="news"><p>\n{segments}</p></doc></{kind}>\n'


def read(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def joined(sentences: list[str]) -> str:
    return "".join(sentence + "\n" for sentence in sentences)


def member(text: Text) -> str:
    assert text.member is not None
    return text.member


def pack_wmt14(corpus: PublishedCorpus, data: Path, mirror: Path) -> dict[str, int]:
    """Archives of the upstream structure; gives the counts of the texts that are other than upstream's.

    Europarl is of the first training sample, Common Crawl of the second and the first 200 pairs of newstest2013, News
    Commentary the last 200 pairs of the first sample. All are a beginning of what they stand for.
    """
    train: dict[str, dict[str, list[str]]] = {}
    for language in ("en", "de"):
        first, second = (read(data / f"train-sample-{sample}.tok.{language}.gz")[:400] for sample in "ab")
        train[language] = {
            "europarl-v7": first,
            "commoncrawl": second + read(data / f"newstest2013.{language}.gz")[:200],
            "news-commentary-v9": first[-200:],
        }
    for parallel in corpus.splits["train"]:
        sides = parallel.sides
        tgz(
            mirror / sides["en"].file.name,
            {member(sides[language]): joined(train[language][parallel.name]) for language in sides},
        )
    counts = {name: len(sentences) for name, sentences in train["en"].items()}
    (valid,) = corpus.splits["valid"]
    counts[valid.name] = 200
    members = {member(text): joined(read(data / f"newstest2013.{side}.gz")[:200]) for side, text in valid.sides.items()}
    tgz(mirror / valid.sides["en"].file.name, members)
    for split, count in (("test", 200), ("test1", 150)):
        (test,) = corpus.splits[split]
        counts[test.name] = count
        tests = {
            member(test.sides[side]): sgm(kind, read(data / f"newstest2014.en-de.{side}.gz")[:count])
            for side, kind in (("en", "srcset"), ("de", "refset"))
        }
        tgz(mirror / test.sides["en"].file.name, tests)
    return counts


def test_wmt14_from_archives_of_the_upstream_structure(shared: Path, tmp_path: Path) -> None:
    corpus = find_corpus("wmt14-en-de")
    assert isinstance(corpus, PublishedCorpus)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    counts = pack_wmt14(corpus, shared / "data/wmt14", mirror)
    options = PrepareOptions(size=1000, shards=2)
    folder = tmp_path / "out"
    record = prepared(stand_in(corpus, counts), folder, mirror=mirror, options=options)
    report = json.loads((folder / "cleaning.json").read_text())
    trained_on = {text.name: counts[text.name] for text in corpus.splits["train"]}
    assert {name: text["pairs"] for name, text in report["texts"].items()} == trained_on
    # What stands in for News Commentary came before, and the news of valid leak: a few of them twice.
    commentary, crawl = report["texts"]["news-commentary-v9"], report["texts"]["commoncrawl"]
    assert commentary["kept"] == 0 and crawl["dropped"]["leak"] >= 192
    assert sum(report["total"]["dropped"].values()) + report["total"]["kept"] == sum(trained_on.values())
    kept = report["total"]["kept"]
    assert record["sentences"] == {"train": kept, "valid": 200, "test": 200, "test1": 150}
    assert set(record["inputs"]) == {path.name for path in mirror.iterdir()}
    assert all(entry["size"] and len(entry["sha256"]) == 64 for entry in record["inputs"].values())
    reference = (folder / "reference/test.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert reference == read(shared / "data/wmt14/newstest2014.en-de.de.gz")[:200]
    assert not list(tmp_path.glob("*.partial"))
