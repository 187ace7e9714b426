"""Your own text: the ways of giving it, the sets that are split off, and bad input."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rskip.cli.main import main
from rskip.corpora.own_corpus import default_cleaning, default_size
from rskip.files import packed
from rskip.text.pipeline import TextPipeline
from rskip.text.tokenizer import Tokenizer
from tests.corpora.conftest import contents

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


@pytest.fixture
def prepare(tmp_path: Path) -> Prepare:
    """Runs the command with BPE of few merges, and gives what it made."""
    count = 0

    def run(*arguments: str) -> dict[str, bytes]:
        nonlocal count
        count += 1
        output = tmp_path / f"out{count}"
        given = ["--subword", "bpe", "--bpe-size", "30", *arguments, "--output", str(output), "--workers", "1"]
        assert main(["prepare", *given]) == 0
        return contents(output)

    return run


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
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
    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    if zstd := packed._zstd():
        packers[".zst"] = lambda content: zstd.compress(content[:99]) + zstd.compress(content[99:])  # as pzstd does
    for suffix, pack in packers.items():
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
    codes = ("--languages", "en", "de")
    for seed in range(1, 5):  # what is split off has nothing of a given set
        other = prepare(*flags[:4], *("--test-prefix", str(tmp_path / "valid")), *codes, "--seed", str(seed))
        assert not {*other["reference/valid.en"].splitlines()} & {source.encode() for source, _ in PAIRS[:3]}


@pytest.mark.parametrize("subwords", ["bpe", "sentencepiece", "sentencepiece-bytes"])
def test_what_other_programs_take_for_a_line_end_is_in_no_token(
    prepare: Prepare, tmp_path: Path, subwords: str
) -> None:
    ends = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
    pairs = [
        (f"{source[:3]}{end}{source[3:]} {end}", f"{end}{target} \0{end} .")
        for number, (source, target) in enumerate(PAIRS)
        for end in [ends[number % len(ends)]]
    ]
    made = prepare(*write_sides(tmp_path / "train", pairs), "--subword", subwords, "--bpe-size", "400")
    assert json.loads(made["corpus.json"])["sentences"] == {"train": 46, "valid": 2, "test": 2}
    assert not set(f"{ends}\0") & set(made["dict.en.txt"].decode())


# what Moses' tokeniser and its punctuation rules, or SentencePiece's own, change: quotes, dashes, forms, joiners, marks
ANY_LANGUAGE = (
    "هل أنت بخير؟ نعم، شكرا؛", "می‌خواهم بروم.", "आप कैसे हैं? वह घर गया।", "Πώς είσαι; Καλά·", "Ինչպե՞ս ես։",
    "እንዴት ነህ፧ ደህና ነኝ።", "คุณเป็นอย่างไรบ้าง ฉันสบายดี", "はい、元気です。「ありがとう」ｶﾅ！",
    "你好吗？我很好，谢谢。“你好”", "နေကောင်းလား။", "བདེ་པོ་ཡིན།",
    "Как дела? — «Хорошо!»", "Il dit : « Bonjour ! »", "Er sagte: „Es kostet 5 %.“", "L'uomo dell'anno…",
    "İstanbul'da ½ ﬁ", "e\u0301 is not é", "emoji 👩‍👧 and 🇫🇷", "a @-@ b &amp; | [c]",
)  # fmt: skip


def test_text_of_any_language_decodes_to_what_was_encoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the units were learnt from it or not; and `rskip prepare` tells how much of the target text does."""
    half = ANY_LANGUAGE[::2]
    sides = write_sides(tmp_path / "train", [(f"w{n}", f"{half[n % len(half)]} {n}") for n in range(90)])
    given = ["prepare", *sides, "--no-clean", "--workers", "1", "--output"]
    assert main([*given, str(tmp_path / "own")]) == 0
    assert "encoded and decoded, 4 of 4 de sentences of valid stay the same\n" in capsys.readouterr().out
    tokenizer = Tokenizer.load(tmp_path / "own")
    for sentence in ANY_LANGUAGE:
        assert tokenizer.decode(tokenizer.encode_prefix(sentence)) == sentence
    assert main([*given, str(tmp_path / "bpe"), "--subword", "bpe", "--bpe-size", "300"]) == 0
    counts = json.loads((tmp_path / "bpe/corpus.json").read_bytes())["round_trip"]
    assert counts["equal"] < counts["sentences"] == 4
    assert f"decoded, {counts['equal']} of 4 de sentences of valid stay the same: the others" in capsys.readouterr().out


def test_words_and_case_are_chosen_and_kept_for_translation(prepare: Prepare, tmp_path: Path) -> None:
    pairs = [(f"Well, {source}", f"Na, {target}") for source, target in PAIRS]
    sides = write_sides(tmp_path / "train", pairs)
    raw = "Well, Dog-man."
    ways: list[tuple[list[str], str, str]] = [  # flags, words of a sentence, the sentence that the words become again
        ([], "Well , Dog @-@ man .", raw),
        (["--tokenizer", "none", "--lowercase"], "well, dog-man.", "well, dog-man."),
        (["--tokenizer", "moses", "--subword", "sentencepiece", "--bpe-size=60"], "Well , Dog @-@ man .", raw),
    ]
    for number, (flags, words, sentence) in enumerate(ways):
        made = prepare(*sides, *flags)
        pipeline = TextPipeline.load(tmp_path / f"out{number + 1}/text")
        assert pipeline.config.tokeniser == ("none" if "none" in flags else "moses")
        assert pipeline.encode("Well,  Dog-man.") == pipeline.subwords.segment(words), flags
        assert pipeline.decode(pipeline.encode("Well,  Dog-man.")) == sentence
        tokens = made["dict.en.txt"].decode()
        assert (tokens == tokens.lower()) == ("--lowercase" in flags)
        if "sentencepiece" not in flags:
            assert ("Na, " in tokens or "na, " in tokens) == ("none" in flags), "a word has its comma, or not"
        assert b"Well, " in made["reference/test.en"], "references stay raw"
    assert json.loads(made["corpus.json"])["options"]["tokeniser"] == "moses"


def test_other_columns_of_the_same_table_are_another_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = ["prepare", "--table", str(tmp_path / "table.tsv"), "--languages", "en", "de"]
    table += ["--output", str(tmp_path / "table"), "--columns"]
    (tmp_path / "table.tsv").write_text("".join(f"{source}\t{target}\t{target} so\n" for source, target in PAIRS))
    assert [main([*table, "1", second]) for second in ("2", "2", "3")] == [0, 0, 2]
    assert "table was prepared from other files, or other versions of them; use --force" in capsys.readouterr().err


def test_a_tables_columns_are_in_the_order_of_its_name(prepare: Prepare, tmp_path: Path) -> None:
    (tmp_path / "news.en-de.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    made = prepare("--table", str(tmp_path / "news.en-de.tsv"), "--languages", "de", "en")
    assert {*made["reference/valid.de"].decode().splitlines()} <= {target for _, target in PAIRS}


def test_a_header_and_quotes_in_a_table_are_told(
    prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quoted = [("source", "target"), *PAIRS, ('"he said ""hi"""', "er sagte"), ('He said "hi".', "ja")]
    (tmp_path / "t.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in quoted), encoding="utf-8")
    prepare("--table", str(tmp_path / "t.tsv"), "--languages", "en", "de")
    header, quotes = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{tmp_path}/t.tsv: ")]
    assert "source target, may be the names of columns" in header and "--columns" in header
    assert "1 pairs have quotes as in CSV" in quotes


def test_bad_input_is_one_line_and_leaves_nothing(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sides(Path("train"), PAIRS)
    write_sides(Path("long"), [*PAIRS[:2], ("a" * 20_001, "b")])
    write_sides(Path("two"), PAIRS[:2])
    write_sides(Path("blank"), [(" ", "")] * 30)
    german = text([target for _, target in PAIRS])
    for name, content in (
        ("empty.de", b""),
        ("short.de", german.partition(b"\n")[2]),
        ("cut.de.gz", gzip.compress(german)[:-9]),
        ("one.tsv", b"a\tb\nc\n"),
        ("not.jsonl", b'{"en": "a", "de": "b"}\nc\n'),
        ("keys.jsonl", b'{"en": "a", "fr": "b"}\n'),
        ("header.tsv", b"en\tde\n"),
    ):
        Path(name).write_bytes(content)
    os.mkfifo("pipe.de")
    same, codes = ["--source", "train.en"], ["--languages", "en", "de"]
    given = ["--source", "train.en", "--target", "train.de"]
    for arguments, message in (
        (["--source", "train.en"], "--source is given without --target"),
        (["--valid-source", "a", "--valid-target", "b"], "no text to train on"),
        (["numbers-en-de", *given], "--source is for your own text"),
        ([*same, "a.en", "--target", "train.de"], "2 source files and 1 target files were given"),
        ([*same, "--target", "-"], "- (standard input) can't be two files"),
        ([*given, "--mirror", "."], "--mirror is only for corpora from --list"),
        (["--train-prefix", "train"], "--train-prefix needs the codes"),
        (["--train-prefix", "nowhere", *codes], "no file nowhere.en, nor a compressed one"),
        ([*same, "--target", "nowhere.de"], "nowhere.de: No such file or directory"),
        ([*same, "--target", "one.tsv"], "unknown languages: the names of train.en and one.tsv"),
        (
            [*given, "--valid-source", "train.de", "--valid-target", "train.en"],
            "the files disagree about the languages",
        ),
        ([*given, "--languages", "en", "German"], "language 'German': expected a code"),
        ([*same, "--target", "train.en"], "both languages are en"),
        ([*same, "--target", "train.en", *codes], "train.en and train.en have the same content"),
        ([*given, "--test-prefix", "train", *codes], "train.en and train.de (test) and train.en and train.de (train)"),
        ([*same, "--target", "empty.de"], "empty.de is empty"),
        ([*same, "--target", "short.de"], "train.en has 50 lines and short.de has 49"),
        ([*same, "--target", "cut.de.gz"], "cut.de.gz is damaged or truncated after line "),
        (["--table", "one.tsv", *codes], "one.tsv: line 2 has 1 columns"),
        (["--table", "one.tsv", "--columns", "0", "1", *codes], "columns are 0 and 1: expected two numbers from 1"),
        (["--table", "one.tsv", "--columns", "1", "1", *codes], "columns are 1 and 1: expected two numbers from 1"),
        (["--table", "header.tsv", *codes], "header.tsv has no pairs"),
        ([*given, "--languages", "de", "en"], "train.en and train.de are en and de by their names: swap source"),
        ([*same, "--target", "pipe.de"], "pipe.de is a pipe"),
        (["--table", "one.tsv", "--columns", "a", "c", *codes], "one.tsv has no column 'c'"),
        (["--table", "not.jsonl", *codes], "not.jsonl: line 2 is not a JSON object"),
        (["--table", "keys.jsonl", *codes], "keys.jsonl: line 1 has no text under the key 'de'"),
        ([*given, "--test-prefix", "long", *codes], "long.en: sentence 3 has 20,001 characters"),
        (["--train-prefix", "blank", *codes], "the training text has 0 different source sentences"),
        ([*given, "--valid-prefix", "two", "--valid", "3", *codes], "--valid is for your own text without"),
    ):
        told = refused(*arguments)
        assert told.startswith(message), arguments


def test_languages_are_looked_at_where_langid_is_installed(
    refused: Callable[..., str], prepare: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("py3langid")
    french = "Le chien court dans la grande maison blanche, et le chat dort."
    english = "The dog is running through the big house, and the cat sleeps."
    flags = write_sides(tmp_path / "train", [(f"{french} {number}", f"{english} {number}") for number in range(30)])
    told = refused(*flags, "--languages", "en", "fr")
    assert told.endswith("train.de: the first is fr, the second en, expected en and fr: swap source and target")
    prepare(*flags)
    assert f"{flags[1]} looks like fr, not en: check it" in capsys.readouterr().out.splitlines()
    prepare(*flags, "--languages", "fr", "gsw")  # a language that langid doesn't know
    assert "looks like" not in capsys.readouterr().out


def test_report_says_what_was_read_split_off_and_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [*PAIRS, PAIRS[0], ("", "leer"), ("a b c d e f g h i j", "a"), ("nine words", "neun")]
    assert main(["prepare", *write_sides(tmp_path / "train", pairs), "--output", str(tmp_path / "own")]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.split() == ["read", "file", "pairs", "words", "en", "words", "de"]
    words = [sum(len(pair[side].split()) for pair in pairs) for side in range(2)]
    assert lines[0].split()[-3:] == ["54", *map(str, words)]
    assert lines[1].startswith("split off the training pairs: valid 2, test 2 (seed 1)")
    assert any(line.split() == ["dropped", "as", "empty:", '""', "leer"] for line in lines)
    assert lines[-2:] == [
        f"inspect it with: rskip inspect {tmp_path}/own --plot lengths.svg",
        f"train on it with: rskip train {tmp_path}/own",
    ]


@pytest.mark.parametrize(
    ("source", "spaced"), [("en", True), ("zh", False), ("zh_CN", False), ("jpn", False), ("yue_Hant", False)]
)
def test_default_cleaning_and_size(source: str, spaced: bool) -> None:
    cleaning = default_cleaning(source, "de")
    assert (cleaning.max_words > 0) == (cleaning.max_ratio > 0) == spaced
    assert cleaning.empty and cleaning.duplicates and cleaning.leaks and cleaning.max_characters
    sizes = [default_size(pairs, characters=90) for pairs in (10, 4_999, 5_000, 10_000, 29_000, 200_000, 10**6)]
    assert sizes == [2_000, 2_000, 4_000, 10_000, 10_000, 16_000, 32_000]
    assert default_size(10, characters=3_001) == 7_000
