"""From raw files to what fairseq-train reads, and what happens to folders that are there already."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rskip.corpora import CORPORA, PrepareOptions, prepare
from rskip.text import Dictionary, TextPipeline
from tests.corpora.conftest import contents

FILES = sorted(
    ["corpus.json", "text/codes.bpe", "text/pipeline.json"]
    + [f"dict.{language}.txt" for language in ("de", "en")]
    + [f"reference/{split}.{language}" for split in ("test", "valid") for language in ("de", "en")]
    + [
        f"{split}.en-de.{language}.{kind}"
        for split in ("train", "valid", "test")
        for language in ("de", "en")
        for kind in ("bin", "idx")
    ]
)


def test_what_a_prepared_folder_holds(make_corpus: Any, mirror: Path, output: Path) -> None:
    corpus = make_corpus()
    assert prepare(corpus, output, mirror=str(mirror), workers=2)
    made = contents(output)
    assert sorted(made) == FILES
    pipeline = TextPipeline.load(output / "text")
    assert (pipeline.source_language, pipeline.target_language) == ("en", "de")
    raw = (output / "reference/valid.de").read_text(encoding="utf-8").splitlines()
    assert raw == ["Ein Hund läuft.", "Sein Schlitten ist „neu“.", "Zwei Männer laufen."]
    dictionary = Dictionary.load(output / "dict.de.txt")
    assert made["dict.en.txt"] == made["dict.de.txt"]
    # fairseq stores 16-bit indices, sentence after sentence.
    stored = memoryview(made["valid.en-de.de.bin"]).cast("H").tolist()
    assert stored == [index for sentence in raw for index in dictionary.encode_line(pipeline.encode_target(sentence))]
    assert dictionary.unk_index not in stored

    record = json.loads(made["corpus.json"])
    assert record["sentences"] == {"train": 5, "valid": 3, "test": 2}
    assert record["dictionary_size"] == len(dictionary)
    assert record["options"] == {"subwords": "bpe", "size": 20}
    assert record["inputs"]["val.de.gz"]["sha256"] == corpus.splits["valid"][0].sides["de"].file.sha256
    assert set(record["tools"]) == {"sacremoses", "subword-nmt"}
    assert sorted(record["files"]) == sorted(set(FILES) - {"corpus.json"})


def test_second_call_does_nothing(make_corpus: Any, mirror: Path, output: Path) -> None:
    corpus = make_corpus()
    assert prepare(corpus, output, mirror=str(mirror))
    before = contents(output)
    (output / "checkpoints").mkdir()
    (output / "checkpoints/mine.pt").write_bytes(b"mine")
    assert not prepare(corpus, output, mirror="nowhere")
    assert contents(output) == {**before, "checkpoints/mine.pt": b"mine"}


def test_other_options_are_refused_then_forced(make_corpus: Any, mirror: Path, output: Path) -> None:
    corpus = make_corpus()
    prepare(corpus, output, mirror=str(mirror))
    before = contents(output)
    fewer = PrepareOptions(size=7)
    message = "tiny was prepared with subwords bpe, size 20, not with subwords bpe, size 7"
    with pytest.raises(ValueError, match=message):
        prepare(corpus, output, mirror=str(mirror), options=fewer)
    assert contents(output) == before
    assert prepare(corpus, output, mirror=str(mirror), options=fewer, force=True)
    assert len((output / "text/codes.bpe").read_text(encoding="utf-8").splitlines()) == 8
    assert [path.name for path in output.parent.iterdir()] == ["tiny"]


def test_other_inputs_and_other_corpora_are_refused(make_corpus: Any, mirror: Path, output: Path) -> None:
    prepare(make_corpus(), output, mirror=str(mirror))
    with pytest.raises(ValueError, match="tiny holds tiny-en-de, not numbers-en-de; use force"):
        prepare(CORPORA["numbers-en-de"], output)
    (mirror / "test.en.gz").write_bytes((mirror / "val.en.gz").read_bytes())
    with pytest.raises(ValueError, match="was prepared from other files"):
        prepare(make_corpus(), output, mirror=str(mirror))


def test_folder_that_lacks_a_file_is_made_again_by_force(
    make_corpus: Any, mirror: Path, output: Path
) -> None:
    corpus = make_corpus()
    prepare(corpus, output, mirror=str(mirror))
    size = (output / "dict.de.txt").stat().st_size
    os.truncate(output / "dict.de.txt", 3)
    with pytest.raises(ValueError, match=rf"tiny is damaged \(dict\.de\.txt has 3 bytes, not {size}\); use force"):
        prepare(corpus, output, mirror=str(mirror))
    (output / "dict.de.txt").unlink()
    with pytest.raises(ValueError, match=r"tiny lacks dict\.de\.txt"):
        prepare(corpus, output, mirror=str(mirror))
    assert prepare(corpus, output, mirror=str(mirror), force=True)
    assert (output / "dict.de.txt").stat().st_size == size


def test_users_files_are_never_replaced(make_corpus: Any, mirror: Path, output: Path) -> None:
    corpus = make_corpus()
    output.mkdir(parents=True)
    (output / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"tiny was not made by rskip prepare, because it has no corpus\.json"):
        prepare(corpus, output, mirror=str(mirror), force=True)
    (output / "thesis.tex").unlink()
    prepare(corpus, output, mirror=str(mirror))
    (output / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"tiny holds thesis\.tex, which rskip prepare did not make"):
        prepare(corpus, output, mirror=str(mirror), options=PrepareOptions(size=7), force=True)
    assert (output / "thesis.tex").read_text() == "mine"
    (output.parent / "taken").write_text("mine")
    with pytest.raises(OSError, match="taken"):
        prepare(corpus, output.parent / "taken" / "data", mirror=str(mirror))
    with pytest.raises(ValueError, match="a_file was not made by rskip prepare"):
        (output.parent / "a_file").write_text("mine")
        prepare(corpus, output.parent / "a_file", mirror=str(mirror), force=True)


def test_two_at_once_make_it_once(make_corpus: Any, mirror: Path, output: Path) -> None:
    corpus = make_corpus()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: prepare(corpus, output, mirror=str(mirror)), range(4)))
    assert sorted(made) == [False, False, False, True]
    assert [path.name for path in output.parent.iterdir()] == ["tiny"]


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_unfinished_folder_of_other_options_is_started_again_by_force_alone(
    make_corpus: Any, mirror: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr("rskip.corpora.preparation.segment", full)
        with pytest.raises(OSError, match="No space left"):
            prepare(make_corpus(), output, mirror=str(mirror))
    assert [path.name for path in output.parent.iterdir()] == ["tiny.partial"]
    fewer = PrepareOptions(size=7)
    message = "tiny.partial was left by an unfinished run and was prepared with .*size 20, not with .*size 7; use force"
    with pytest.raises(ValueError, match=message):
        prepare(make_corpus(), output, mirror=str(mirror), options=fewer)
    assert prepare(make_corpus(), output, mirror=str(mirror), options=fewer, force=True)
    assert len((output / "text/codes.bpe").read_text(encoding="utf-8").splitlines()) == 8
    assert [path.name for path in output.parent.iterdir()] == ["tiny"]
