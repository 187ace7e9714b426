"""Complete preparations: Multi30k's own files, and files of every published corpus's structure."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
from collections import defaultdict
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from rskip.corpora import CORPORA, PrepareOptions, find_corpus, prepare
from rskip.corpora.corpus import ParallelText, PublishedCorpus, UpstreamFile
from rskip.corpora.inspection import inspect_data
from rskip.text import TextPipeline

SENTENCES = 46  # of each text of a stand-in, two of which every 23rd takes


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "cache"))


@pytest.mark.slow
def test_multi30k_is_what_the_committed_models_were_trained_on(shared: Path, root: Path, tmp_path: Path) -> None:
    """The models' data were prepared by one process, or by several: their sums tell no difference."""
    folder = tmp_path / "multi30k"
    assert prepare(find_corpus("multi30k-en-de"), folder, mirror=str(shared / "data/multi30k"), workers=1)
    record = json.loads((folder / "corpus.json").read_text())
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
    raw = (gzip.decompress((shared / f"data/multi30k/train.{side}.gz").read_bytes()) for side in ("en", "de"))
    english, german = (content.decode().split("\n") for content in raw)
    for example in statistics["examples"]:
        row = example["number"] - 1
        tokens = pipeline.encode(english[row]), pipeline.encode_target(german[row])
        assert example["lengths"] == [len(side.split()) for side in tokens]
        assert (example["source"], example["target"]) == (
            back.decode(tokens[0]),
            pipeline.decode(tokens[1]),
        )


def stand_in(corpus: PublishedCorpus) -> PublishedCorpus:
    """The corpus with SENTENCES in each text, in files of any size and checksum."""

    def replace(parallel: ParallelText) -> ParallelText:
        sides = {
            language: dataclasses.replace(text, file=dataclasses.replace(text.file, size=None, sha256=None))
            for language, text in parallel.sides.items()
        }
        return dataclasses.replace(parallel, sides=sides, sentences=SENTENCES)

    return dataclasses.replace(corpus, splits={split: tuple(map(replace, of)) for split, of in corpus.splits.items()})


def sentences(text: ParallelText, language: str) -> list[str]:
    return [f"{language} {text.name}: a & b, {number}." for number in range(1, SENTENCES + 1)]


def write_mirror(corpus: PublishedCorpus, mirror: Path) -> None:
    files: dict[UpstreamFile, dict[str | None, bytes]] = defaultdict(dict)
    for texts in corpus.splits.values():
        for parallel in texts:
            for language, text in parallel.sides.items():
                lines = sentences(parallel, language)
                if text.format in ("sgm", "xml"):
                    lines = [f"<seg id={number}>{escape(line)}</seg>" for number, line in enumerate(lines)]
                content = "".join(f"{line}\n" for line in lines).encode()
                packed = (text.member or text.file.name).endswith(".gz")
                files[text.file][text.member] = gzip.compress(content) if packed else content
    for file, members in files.items():
        if None in members:
            (mirror / file.name).write_bytes(members[None])
            continue
        with tarfile.open(mirror / file.name, "w:gz" if file.name.endswith("gz") else "w") as archive:
            for name, content in members.items():
                information = tarfile.TarInfo(str(name))
                information.size = len(content)
                archive.addfile(information, io.BytesIO(content))


PUBLISHED = [each for each in CORPORA.values() if isinstance(each, PublishedCorpus) and each.source == "en"]


@pytest.mark.parametrize("corpus", [*map(stand_in, PUBLISHED)], ids=lambda corpus: corpus.name)
def test_files_of_the_upstream_structure(corpus: PublishedCorpus, tmp_path: Path) -> None:
    mirror, folder = tmp_path / "mirror", tmp_path / "out"
    mirror.mkdir()
    write_mirror(corpus, mirror)
    options = PrepareOptions(size=60, clean=False, shards=2)
    assert prepare(corpus, folder, mirror=str(mirror), options=options)
    record = json.loads((folder / "corpus.json").read_text())
    pairs = {split: sum(text.pairs or 0 for text in texts) for split, texts in corpus.splits.items()}
    assert record["sentences"] == pairs and set(record["inputs"]) == {path.name for path in mirror.iterdir()}
    statistics = inspect_data(folder).statistics
    assert {split: found["sentences"] for split, found in statistics["splits"].items()} == pairs
    for split, texts in corpus.splits.items():
        if split != "train" and not corpus.defaults.tokenised:
            numbered = [(text, *each) for text in texts for each in enumerate(sentences(text, "en"), start=1)]
            lines = [line for text, number, line in numbered if text.takes(number)]
            assert (folder / f"reference/{split}.en").read_text(encoding="utf-8").splitlines() == lines
    assert not list(tmp_path.glob("*.partial"))
