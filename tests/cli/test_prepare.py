"""`rskip prepare` as a user meets it: what it prints, its exit status, and what bad input leaves behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.corpora import CAPTION_CORPORA, CORPORA, TEXT_CORPORA
from tests.cli.conftest import Refused


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "--list"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.split() == ["corpus", "to", "train", "on", "download", "terms"]
    assert re.match(r"multi30k-en-de, multi30k-de-en +29,000 pairs +1.3 MB  research use; ", lines[0])
    names = [name for line in lines for name in re.split(r"  +", line)[0].split(", ")]
    assert sorted(names) == sorted([*CORPORA, *CAPTION_CORPORA, *TEXT_CORPORA]) and len(lines) < len(names)

    assert main(["prepare", "multi30k-de-en", "--list"]) == 0
    assert capsys.readouterr().out.startswith("multi30k-de-en: https://github.com/multi30k/dataset\n  terms: research ")


def test_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused) -> None:
    output = tmp_path / "numbers"
    arguments = ["prepare", "numbers-en-de", "--pairs", "50", "--bpe-size", "60", "--output", str(output)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(
        f"{output} is ready: pairs: train 50, valid 1,000, test 1,000; dictionary: "
    )
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"{output} is up to date (nothing to do): pairs: train 50, ")
    message = (
        f"rskip prepare: error: {output} was prepared with subwords bpe, size 60, pairs 50, seed 1, not with "
        "subwords bpe, size 60, pairs 50, seed 2; use --force; or choose another output"
    )
    refused(message, *arguments, "--seed", "2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["multi30k-de-en-"], "unknown corpus 'multi30k-de-en-': did you mean 'multi30k-de-en'?"),
        ([], "no corpus given: expected a name from `rskip prepare --list`, or --source and --target"),
        (["numbers-en-de", "--workers", "0"], "--workers is 0: expected 1 to 1024"),
        (["numbers-en-de", "--shards", "501"], "--shards is 501: expected a whole number, 1 or more and at most 500"),
        (["--text", "book.txt", "--images", "photos"], "--images is only for image captions"),
        (["--source", "a.en", "--target", "a.de", "--columns", "1", "2"], "--columns is only for a table"),
        (["multi30k-en-de", "--seed", "1"], "--seed is for generated corpora and split-off sets, not for"),
        (
            ["multi30k-en-de", "--mirror", "nowhere"],
            "no mirror folder nowhere: expected one that holds train.en.gz",
        ),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(f"rskip prepare: error: {message}", "prepare", *arguments)
    assert [path for path in tmp_path.rglob("*") if path.name != "data-bin"] == []


def test_shards_and_the_path_for_fairseq(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "numbers"
    arguments = ["prepare", "numbers-en-de", "--pairs", "50", "--bpe-size", "60", "--shards", "2"]
    assert main([*arguments, "--drop-duplicates", "--output", str(output)]) == 0
    table, _, end = capsys.readouterr().out.partition("\n\n")
    assert table.split("\n")[0].split() == ["pairs", "duplicate", "kept"]
    assert table.split("\n")[1].split() == ["numbers-en-de", "50", "0", "50", "100.00", "%"]
    assert end.splitlines()[1] == f"train on all shards with: fairseq-train {output}/shard1:{output}/shard2"
