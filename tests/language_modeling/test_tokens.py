"""Texts become tokens and tokens become texts again; corpora and own files become data folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.corpora import TEXT_CORPORA
from rskip.corpora.binarised import MmapSentences
from rskip.language_modeling.data import load_data
from rskip.language_modeling.preparation import TextOptions, prepare_text, read_parts
from rskip.language_modeling.tokens import TextTokens

ODD = "a b\t\u2581\u00a0c<U+0041>\u200bd\n\n e\x0b "


def test_characters_are_exact_whatever_they_are(tmp_path: Path) -> None:
    tokens = TextTokens.learn("characters", ODD, size=1)
    assert len(tokens.dictionary) == 4 + len({*ODD} - {"\n"})
    tokens.save(tmp_path)
    read = TextTokens.load(tmp_path)
    assert read.dictionary.tokens == tokens.dictionary.tokens
    for text in (ODD, "", "\n", "a", "\n\n", " a "):
        assert read.decode(read.encode(text)) == text
        assert len(read.encode(text)) == len(text)
    with pytest.raises(ValueError, match=r"^the prompt has the character 'é', which the model doesn't know: expected "):
        read.encode("a\né", source="the prompt")


def test_a_token_that_is_no_character_stays(tmp_path: Path) -> None:
    TextTokens.learn("characters", "ab", size=1).save(tmp_path)
    (tmp_path / "dict.txt").write_text("a 1\n<U+110000> 1\n<U+0009> 1\n<U+FFFFFFFFF> 1\n")
    assert TextTokens.load(tmp_path).decode([4, 5, 6, 7]) == "a<U+110000>\t<U+FFFFFFFFF>"


def test_subwords_know_every_character(tmp_path: Path) -> None:
    text = "the cat sat on the mat\nthe dog sat\n" * 20
    tokens = TextTokens.learn("subwords", text, size=300)
    tokens.save(tmp_path)
    read = TextTokens.load(tmp_path)
    unknown = read.dictionary.unk_index
    for line in ("the cat\nsat", "straße → €"):
        found = read.encode(line)
        assert unknown not in found and read.decode(found) == line
    assert len(read.encode("the cat sat")) < len("the cat sat")
    table = "le chat\tthe cat\u00a0!\u3000fin\n" * 50
    tokens = TextTokens.learn("subwords", table, size=300)
    for kept in (table, "\tle chat\u00a0", "\t"):
        assert tokens.decode(tokens.encode(kept)) == kept


def test_a_prepared_text_is_its_characters_in_order(text: Path, prepared: Path) -> None:
    raw = text.read_bytes().decode().replace("\r\n", "\n")
    data = load_data(prepared)
    assert {split: data.tokens.decode(tokens.tolist()) for split, tokens in data.splits.items()} == read_parts(
        text, valid_share=0.2
    )
    lines = MmapSentences(prepared / "train")  # as fairseq reads them
    count = sum(1 for line in data.tokens.decode(data.splits["train"].tolist()).split("\n"))
    assert len(lines) in (count, count - 1)
    record = json.loads((prepared / "corpus.json").read_text())
    assert sum(record["characters"].values()) == len(raw)
    assert record["characters"]["valid"] == pytest.approx(len(raw) / 5, abs=1)
    assert record["corpus"] == "cats" and record["dictionary_size"] == len(data.tokens.dictionary)


def test_preparing_again_does_nothing_and_other_options_are_told(text: Path, prepared: Path) -> None:
    assert not prepare_text(text, prepared, options=TextOptions(valid_share=0.2))
    with pytest.raises(ValueError, match="was prepared with tokens characters, valid_share 0.2, not with"):
        prepare_text(text, prepared)


def test_shakespeare_is_split_as_nanogpt_splits_it(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    mirror = shared / "data/tinyshakespeare"
    assert main(["prepare", "shakespeare-char", "--mirror", str(mirror), "--output", str(tmp_path / "data")]) == 0
    assert "tokens: train 1,003,854, valid 111,540; dictionary: 68 tokens" in capsys.readouterr().out
    assert TEXT_CORPORA["shakespeare-char"].file.size == 1_115_394


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--text", "missing.txt"], "missing.txt: no such file: expected a text file in UTF-8"),
        (["--text", "latin.txt"], "latin.txt: byte 3 is not UTF-8: convert the text to UTF-8"),
        (["--text", "empty.txt"], "empty.txt has 0 characters: expected enough for train and valid; give a longer"),
        (["--text", "nul.txt"], "nul.txt: character 3 is NUL: expected a text file"),
        (["--text", "a.txt", "--text-size", "9"], "--text-size is 9: expected none with characters; use subwords"),
        (["--text", "blank.txt", "--tokens", "subwords", "--text-size", "270"],
         "valid has 0 tokens"),
        (["--text", "a.txt", "--valid-share", "0.01"], "valid has 1 tokens: expected 2 or more"),
        (["--text", "a.txt", "--source", "b"], "--text and --source are given: expected one of them"),
        (["--text", "a.txt", "--max-words", "3"], "--max-words is only for two languages: leave it out"),
        (["multi30k-en-de", "--tokens", "characters"], "--tokens is only for texts in one language: leave it out"),
    ],
)  # fmt: skip
def test_bad_input_is_told_in_one_line(
    words: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    Path("empty.txt").write_bytes(b"")
    Path("nul.txt").write_bytes(b"abc\0" * 20)
    Path("a.txt").write_text("abc\n" * 20)
    Path("blank.txt").write_text("the cat sat\n" * 20 + " " * 60)
    assert main(["prepare", *words, "--output", "out"]) == 2
    printed = capsys.readouterr().err
    assert error in printed and printed.count("\n") == 1 and not Path("out").exists()
