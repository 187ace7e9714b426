"""Text of the user's own: the ways of giving it, what is split off, and bad input."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rskip.cli.main import main

ENGLISH = ["a dog", "the man", "two men", "a red car", "the old house"]
GERMAN = ["ein Hund", "der Mann", "zwei Männer", "ein rotes Auto", "das alte Haus"]
DOES = [("runs", "läuft"), ("sees him", "sieht ihn"), ("is here", "ist hier"), ("waits", "wartet"), ("sings", "singt")]
PAIRS = [
    (f"{english} {does} {number}.", f"{german} {tut} {number}.")
    for number in range(2)
    for english, german in zip(ENGLISH, GERMAN, strict=True)
    for does, tut in DOES
]

Prepare = Callable[..., dict[str, bytes]]


def text(sentences: list[str]) -> bytes:
    return "".join(f"{sentence}\n" for sentence in sentences).encode()


def write_sides(prefix: Path, pairs: list[tuple[str, str]]) -> list[str]:
    """Writes PREFIX.en and PREFIX.de; gives the flags that name them."""
    english, german = Path(f"{prefix}.en"), Path(f"{prefix}.de")
    for path, side in ((english, 0), (german, 1)):
        path.write_bytes(text([pair[side] for pair in pairs]))
    return ["--source", str(english), "--target", str(german)]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture
def prepare(stub: Path, tmp_path: Path) -> Prepare:
    """Runs the command with BPE of few merges, and gives what it made."""
    count = 0

    def run(*arguments: str) -> dict[str, bytes]:
        nonlocal count
        count += 1
        output = tmp_path / f"out{count}"
        assert main(["prepare", *arguments, "--bpe-size", "30", "--output", str(output), "--workers", "1"]) == 0
        return contents(output)

    return run


@pytest.fixture
def refused(stub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command, which must fail with one line and leave nothing; gives the line."""

    def run(*arguments: str) -> str:
        before = contents(tmp_path)
        assert main(["prepare", *arguments, "--output", str(tmp_path / "bin/own")]) == 2
        assert {name for name in contents(tmp_path) if "python" not in name} == {
            name for name in before if "python" not in name
        }
        return capsys.readouterr().err.splitlines()[-1].removeprefix("rskip prepare: error: ")

    return run


def test_every_way_of_giving_the_same_pairs_makes_the_same_data(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = write_sides(tmp_path / "train", PAIRS)
    english, german = Path(sides[1]), Path(sides[3])
    ways: list[list[str]] = [sides, ["--train-prefix", str(tmp_path / "train"), "--languages", "en", "de"]]
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)):
        for path in (english, german):
            path.with_name(path.name + suffix).write_bytes(pack(path.read_bytes()))
        ways.append(["--source", f"{english}{suffix}", "--target", f"{german}{suffix}"])
    (tmp_path / "packed").write_bytes(gzip.compress(english.read_bytes()))  # known by its content
    crlf = tmp_path / "crlf.de"
    crlf.write_bytes(b"\xef\xbb\xbf" + german.read_bytes().replace(b"\n", b"\r\n"))
    ways.append(["--source", str(tmp_path / "packed"), "--target", str(crlf), "--languages", "en", "de"])
    parts = [write_sides(tmp_path / f"part{number}", part) for number, part in enumerate((PAIRS[:7], PAIRS[7:]))]
    ways.append(["--source", parts[0][1], parts[1][1], "--target", parts[0][3], parts[1][3]])

    tables = {
        "train.en-de.tsv": "".join(f"{source}\t{target}\n" for source, target in PAIRS),
        "head.tsv": "id\tde\ten\n" + "".join(f"7\t{target}\t{source}\n" for source, target in PAIRS),
        "keys.jsonl": "".join(json.dumps({"de": target, "en": source, "n": 1}) + "\n" for source, target in PAIRS),
        "nested.jsonl": "".join(
            json.dumps({"translation": {"en": source.replace(" ", "\n", 1), "de": target}}) + "\n\n"
            for source, target in PAIRS
        ),
    }
    for name, content in tables.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    ways.append(["--table", str(tmp_path / "train.en-de.tsv")])
    ways.append(["--table", str(tmp_path / "head.tsv"), "--languages", "en", "de"])
    ways.append(["--table", str(tmp_path / "head.tsv"), "--columns", "en", "de"])
    ways.append(["--table", str(tmp_path / "keys.jsonl"), "--languages", "en", "de"])
    ways.append(["--table", str(tmp_path / "nested.jsonl"), "--languages", "en", "de"])
    ways.append(["--table", "-", "--languages", "en", "de", "--columns", "2", "1"])
    monkeypatch.setattr(
        sys,
        "stdin",
        SimpleNamespace(buffer=io.BytesIO("".join(f"{target}\t{source}\n" for source, target in PAIRS).encode())),
    )

    first, *others = (prepare(*way) for way in ways)
    for name in ("corpus.json", "cleaning.json"):  # they name the files
        for made in (first, *others):
            assert made.pop(name)
    for way, other in zip(ways[1:], others, strict=True):
        assert other == first, way
    assert len(first["reference/valid.en"].splitlines()) == 2


def test_record_and_split(prepare: Prepare, tmp_path: Path) -> None:
    """What is split off depends on the sentences and the seed alone, and no source sentence is on both sides."""
    pairs = [*PAIRS, *[(source, f"{target} so") for source, target in PAIRS], *PAIRS[:5]]
    made = prepare(*write_sides(tmp_path / "train", pairs), "--valid", "7", "--test", "4")
    record = json.loads(made["corpus.json"])
    assert record["options"]["valid"] == 7 and record["options"]["test"] == 4 and record["options"]["seed"] == 1
    assert record["inputs"]["train.en"]["size"] == (tmp_path / "train.en").stat().st_size
    held_out = {split: made[f"reference/{split}.en"].decode().splitlines() for split in ("valid", "test")}
    assert [len(set(sentences)) for sentences in held_out.values()] == [7, 4]
    assert not set(held_out["valid"]) & set(held_out["test"])
    report = json.loads(made["cleaning.json"])["total"]
    assert report["source also in valid or test"] == 0
    dropped = sum(source in {*held_out["valid"], *held_out["test"]} for source, _ in pairs)
    assert record["left_out"] == dropped - 11
    assert report["pairs"] == len(pairs) - dropped
    assert record["sentences"]["train"] == report["kept"] == report["pairs"] - report["dropped"]["duplicate"]

    random.Random(3).shuffle(pairs)
    again = prepare(*write_sides(tmp_path / "shuffled", pairs), "--valid", "5", "--test", "4")
    assert {*again["reference/test.en"].splitlines()} == {*made["reference/test.en"].splitlines()}
    assert {*again["reference/valid.en"].splitlines()} < {*made["reference/valid.en"].splitlines()}
    other = prepare(*write_sides(tmp_path / "train", pairs), "--seed", "2", "--valid", "7", "--test", "4")
    assert {*other["reference/test.en"].splitlines()} != {*made["reference/test.en"].splitlines()}


def test_given_sets_are_taken_as_they_are(prepare: Prepare, tmp_path: Path) -> None:
    flags = write_sides(tmp_path / "train", PAIRS)
    sets = {"valid": PAIRS[:3], "test": [("", "leer"), ("A new one.", "Neu.")], "test1": PAIRS[8:9]}
    for split, pairs in sets.items():
        write_sides(tmp_path / split, pairs)
    flags += ["--valid-prefix", str(tmp_path / "valid"), "--languages", "en", "de"]
    flags += ["--test-source", str(tmp_path / "test.en"), str(tmp_path / "test1.en")]
    flags += ["--test-target", str(tmp_path / "test.de"), str(tmp_path / "test1.de")]
    made = prepare(*flags)
    for split, pairs in sets.items():
        for side, language in enumerate(("en", "de")):
            assert made[f"reference/{split}.{language}"] == text([pair[side] for pair in pairs])
    record = json.loads(made["corpus.json"])
    assert record["sentences"] == {"train": len(PAIRS) - 4, "valid": 3, "test": 2, "test1": 1}
    assert "seed" not in record["options"]


def test_changed_files_are_refused_then_forced(stub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["prepare", *write_sides(tmp_path / "train", PAIRS), "--output", str(tmp_path / "own")]
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert "own is up to date, nothing was done: pairs: train 46, valid 2, test 2" in capsys.readouterr().out
    write_sides(tmp_path / "train", PAIRS[:-1])
    assert main(arguments) == 2
    assert "own was prepared from other versions of the input files: choose another" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0
    assert json.loads((tmp_path / "own/corpus.json").read_bytes())["sentences"]["train"] == 45
