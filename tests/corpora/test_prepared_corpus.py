"""From raw files to what fairseq-train reads, and what happens to folders that are there already."""

from __future__ import annotations

import errno
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rskip.corpora import CORPORA, PrepareOptions, prepare
from rskip.text import Dictionary, TextPipeline

FILES = [
    "corpus.json",
    "dict.de.txt",
    "dict.en.txt",
    "reference/test.de",
    "reference/test.en",
    "reference/valid.de",
    "reference/valid.en",
    "test.en-de.de.bin",
    "test.en-de.de.idx",
    "test.en-de.en.bin",
    "test.en-de.en.idx",
    "text/codes.bpe",
    "text/pipeline.json",
    "train.en-de.de.bin",
    "train.en-de.de.idx",
    "train.en-de.en.bin",
    "train.en-de.en.idx",
    "valid.en-de.de.bin",
    "valid.en-de.de.idx",
    "valid.en-de.en.bin",
    "valid.en-de.en.idx",
]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "bin/tiny"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of fairseq-preprocess, a script that writes sentence counts and a dictionary of one token."""
    (tmp_path / "python").mkdir()
    command = tmp_path / "python/fairseq-preprocess"
    command.write_text(
        f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
import struct, sys
from pathlib import Path
after = dict(zip(sys.argv, sys.argv[1:]))
source, target, out = after["--source-lang"], after["--target-lang"], Path(after["--destdir"])
for split in ("train", "valid", "test"):
    for language in (source, target):
        count = len(Path(after[f"--{{split}}pref"] + "." + language).read_text().splitlines())
        header = b"MMIDIDX\\0\\0" + struct.pack("<QBQ", 1, 8, count)
        (out / f"{{split}}.{{source}}-{{target}}.{{language}}.idx").write_bytes(header)
        (out / f"dict.{{language}}.txt").write_text("a 1\\n")
"""
    )
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python/python"))
    return command


def test_same_bytes_for_any_number_of_workers(make_corpus: Any, mirror: Path, output: Path) -> None:
    pytest.importorskip("fairseq")
    corpus = make_corpus()
    assert prepare(corpus, output, mirror=str(mirror), workers=1)
    made = contents(output)
    assert sorted(made) == FILES
    again = output.with_name("again")
    assert prepare(corpus, again, mirror=str(mirror), workers=2)
    assert contents(again) == made

    pipeline = TextPipeline.load(output / "text")
    assert (pipeline.source_language, pipeline.target_language) == ("en", "de")
    raw = (output / "reference/valid.de").read_text(encoding="utf-8").splitlines()
    assert raw == ["Ein Hund läuft.", "Sein Schlitten ist „neu“.", "Zwei Männer laufen."]
    dictionary = Dictionary.load(output / "dict.de.txt")
    assert made["dict.en.txt"] == made["dict.de.txt"]
    # fairseq stores 16-bit indices, sentence after sentence.
    stored = memoryview(made["valid.en-de.de.bin"]).cast("H").tolist()
    assert stored == [
        index for sentence in raw for index in dictionary.encode_line(pipeline.encode_target(sentence))
    ]
    assert dictionary.unk_index not in stored

    record = json.loads(made["corpus.json"])
    assert record["sentences"] == {"train": 5, "valid": 3, "test": 2}
    assert record["dictionary_size"] == len(dictionary)
    assert record["options"] == {"subwords": "bpe", "size": 20}
    assert record["inputs"]["val.de.gz"]["sha256"] == corpus.splits["valid"][0].files["de"].sha256
    assert set(record["tools"]) == {"sacremoses", "subword-nmt", "fairseq"}
    assert sorted(record["files"]) == sorted(set(FILES) - {"corpus.json"})


def test_sentencepiece_is_an_option(stub: Path, make_corpus: Any, mirror: Path, output: Path) -> None:
    options = PrepareOptions(subwords="sentencepiece", size=45)
    assert prepare(make_corpus(), output, mirror=str(mirror), options=options)
    assert {path.name for path in (output / "text").iterdir()} == {"pipeline.json", "sentencepiece.model"}
    pipeline = TextPipeline.load(output / "text")
    assert pipeline.config.tokeniser == "none"
    assert set(pipeline.config.versions) == {"sacremoses", "sentencepiece"}
    assert pipeline.decode(pipeline.encode_target("Ein Mann läuft.")) == "Ein Mann läuft."


def test_generated_corpus_needs_no_files(stub: Path, output: Path) -> None:
    assert prepare(CORPORA["numbers-de-en"], output, options=PrepareOptions(pairs=20, seed=5))
    record = json.loads((output / "corpus.json").read_text(encoding="utf-8"))
    assert record["options"] == {"subwords": "bpe", "size": 500, "pairs": 20, "seed": 5}
    assert record["sentences"] == {"train": 20, "valid": 1000, "test": 1000}
    assert "num2words" in record["tools"]
    assert "wurde" in (output / "reference/test.de").read_text(encoding="utf-8")


def test_second_call_does_nothing(stub: Path, make_corpus: Any, mirror: Path, output: Path) -> None:
    corpus = make_corpus()
    assert prepare(corpus, output, mirror=str(mirror))
    before = contents(output)
    (output / "checkpoints").mkdir()
    (output / "checkpoints/mine.pt").write_bytes(b"mine")
    stub.unlink()  # neither fairseq nor the mirror is asked for again
    assert not prepare(corpus, output, mirror="nowhere")
    assert contents(output) == {**before, "checkpoints/mine.pt": b"mine"}


def test_other_options_are_refused_then_forced(
    stub: Path, make_corpus: Any, mirror: Path, output: Path
) -> None:
    corpus = make_corpus()
    prepare(corpus, output, mirror=str(mirror))
    before = contents(output)
    fewer = PrepareOptions(size=7)
    message = "tiny was prepared with subwords bpe, size 20, not with subwords bpe, size 7: choose another"
    with pytest.raises(ValueError, match=message):
        prepare(corpus, output, mirror=str(mirror), options=fewer)
    assert contents(output) == before
    assert prepare(corpus, output, mirror=str(mirror), options=fewer, force=True)
    assert len((output / "text/codes.bpe").read_text(encoding="utf-8").splitlines()) == 8
    assert [path.name for path in output.parent.iterdir()] == ["tiny"]


def test_other_inputs_and_other_corpora_are_refused(
    stub: Path, make_corpus: Any, mirror: Path, output: Path
) -> None:
    prepare(make_corpus(), output, mirror=str(mirror))
    with pytest.raises(ValueError, match="tiny holds tiny-en-de, not numbers-en-de: choose another --output"):
        prepare(CORPORA["numbers-en-de"], output)
    (mirror / "test.en.gz").write_bytes((mirror / "val.en.gz").read_bytes())
    with pytest.raises(ValueError, match="was prepared from other versions of the upstream files"):
        prepare(make_corpus(), output, mirror=str(mirror))


def test_folder_that_lacks_a_file_is_made_again_by_force(
    stub: Path, make_corpus: Any, mirror: Path, output: Path
) -> None:
    corpus = make_corpus()
    prepare(corpus, output, mirror=str(mirror))
    (output / "dict.de.txt").unlink()
    with pytest.raises(ValueError, match=r"tiny lacks dict\.de\.txt: choose another --output, or replace it"):
        prepare(corpus, output, mirror=str(mirror))
    assert prepare(corpus, output, mirror=str(mirror), force=True)
    assert (output / "dict.de.txt").exists()


def test_users_files_are_never_replaced(stub: Path, make_corpus: Any, mirror: Path, output: Path) -> None:
    corpus = make_corpus()
    output.mkdir(parents=True)
    (output / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"tiny was not made by rskip prepare \(it has no corpus\.json\)"):
        prepare(corpus, output, mirror=str(mirror), force=True)
    (output / "thesis.tex").unlink()
    prepare(corpus, output, mirror=str(mirror))
    (output / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"tiny holds thesis\.tex, which rskip prepare did not make"):
        prepare(corpus, output, mirror=str(mirror), options=PrepareOptions(size=7), force=True)
    assert (output / "thesis.tex").read_text() == "mine"
    with pytest.raises(ValueError, match="a_file was not made by rskip prepare"):
        (output.parent / "a_file").write_text("mine")
        prepare(corpus, output.parent / "a_file", mirror=str(mirror), force=True)


def test_options_that_can_not_be(make_corpus: Any, output: Path) -> None:
    for options, message in (
        (PrepareOptions(size=0), "the number of subword units is 0: expected 1 or more"),
        (PrepareOptions(subwords="chars"), "unknown subword units 'chars'"),
        (PrepareOptions(pairs=5), "--pairs and --seed are for generated corpora: tiny-en-de is published"),
        (PrepareOptions(seed=0), "--pairs and --seed are for generated corpora"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(make_corpus(), output, options=options)
    assert not output.parent.exists()


def test_fairseq_is_asked_for_before_any_work(stub: Path, make_corpus: Any, output: Path) -> None:
    stub.unlink()
    with pytest.raises(FileNotFoundError, match="install fairseq with `rskip setup-fairseq`"):
        prepare(make_corpus(), output, mirror="nowhere")


def test_two_at_once_make_it_once(stub: Path, make_corpus: Any, mirror: Path, output: Path) -> None:
    corpus = make_corpus()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: prepare(corpus, output, mirror=str(mirror)), range(4)))
    assert sorted(made) == [False, False, False, True]
    assert [path.name for path in output.parent.iterdir()] == ["tiny"]


def test_full_disk_while_writing(
    stub: Path, make_corpus: Any, mirror: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("rskip.corpora.preparation._open_text", full)
    with pytest.raises(OSError, match=r"no space left for .*train\.en: free some, or choose another"):
        prepare(make_corpus(), output, mirror=str(mirror))
    assert list(output.parent.iterdir()) == []


def test_full_disk_within_fairseq(stub: Path, make_corpus: Any, mirror: Path, output: Path) -> None:
    stub.write_text("#!/bin/sh\necho 'OSError: [Errno 28] No space left on device' >&2; exit 1\n")
    with pytest.raises(OSError, match=r"no space left for .*tiny: free some, or choose another --output"):
        prepare(make_corpus(), output, mirror=str(mirror))
    assert list(output.parent.iterdir()) == []
