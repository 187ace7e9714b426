"""What the stages of a preparation do to a small corpus: cleaning, sampling, BPE-dropout, shards, further test sets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rskip.corpora import PrepareOptions, prepare
from rskip.corpora.corpus import CleaningOptions, PrepareDefaults
from rskip.corpora.stages import PairTokeniser, dictionary_entries
from rskip.text import TextPipeline
from tests.corpora.conftest import contents, tokens
from tests.killing import killed_until_done

TRAIN = [
    ("A dog runs.", "Ein Hund läuft."),
    ("Two men run.", "Zwei Männer laufen."),
    ("A dog runs.", "Ein Hund läuft."),  # again
    ("", "Nichts."),  # empty
    ("They see him.", "Sie sehen ihn."),  # in valid
    ("They see him.", "Man sieht ihn."),  # its source alone
    ("He runs.", "Er läuft."),
    ("Yes", "Ja ja ja ja ja ja ja."),  # lopsided
    ("Two\u00ad men run.", "Zwei Männer\u200e laufen."),  # again, once invisible characters are gone
    ("He runs and runs and runs and runs.", "Er läuft und läuft und läuft und läuft."),  # long
    ("A man sees a dog.", "Ein Mann sieht einen Hund."),
]
KEPT = ["A dog runs .", "Two men run .", "They see him .", "He runs .", "A man sees a dog ."]
HELD_OUT = [("They see him.", "Sie sehen ihn."), ("He\u00ad sees.", "Er sieht.")]
CLEANING = CleaningOptions(remove_non_printing=True, empty=True, max_words=8, max_ratio=4, duplicates=True, leaks=True)
COUNTS = {"train": len(TRAIN), "val": 2, "test": 2}


def write(mirror: Path, split: str, pairs: list[tuple[str, str]]) -> None:
    for language, sentences in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        text = "".join(sentence + "\n" for sentence in sentences)
        (mirror / f"{split}.{language}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


@pytest.fixture
def corpus(make_corpus: Any, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A corpus of eleven pairs in blocks of three."""
    monkeypatch.setattr("rskip.corpora.stages.PAIRS_IN_BLOCK", 3)
    write(mirror, "train", TRAIN)
    write(mirror, "val", HELD_OUT)
    write(mirror, "test", HELD_OUT)
    return make_corpus(counts=COUNTS, defaults=PrepareDefaults(size=20, cleaning=CLEANING))


def made(corpus: Any, mirror: Path, output: Path, **options: Any) -> Path:
    workers = options.pop("workers", 1)
    assert prepare(corpus, output, mirror=str(mirror), options=PrepareOptions(**options), workers=workers)
    return output


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def words(path: Path) -> list[str]:
    return [line.replace("@@ ", "") for line in tokens(path)]


def test_pairs_are_dropped_for_their_reasons(corpus: Any, mirror: Path, output: Path) -> None:
    made(corpus, mirror, output)
    assert words(output / "train.en") == KEPT
    assert words(output / "train.de")[2] == "Man sieht ihn ."
    assert words(output / "valid.en")[0] == "They see him ."
    assert lines(output / "reference/valid.en") == ["They see him.", "He\u00ad sees."]
    report = json.loads((output / "cleaning.json").read_text())["total"]
    assert report["pairs"] == 11 and report["kept"] == 5
    assert report["dropped"] == {"empty": 1, "too long": 1, "lopsided": 1, "leak": 1, "duplicate": 2}
    assert report["source also in valid or test"] == 1
    record = json.loads((output / "corpus.json").read_text())
    assert record["sentences"] == {"train": 5, "valid": 2, "test": 2}
    assert record["options"] == {
        "subwords": "bpe",
        "size": 20,
        "remove_non_printing": True,
        "empty": True,
        "max_words": 8,
        "max_ratio": 4,
        "duplicates": True,
        "leaks": True,
    }


def test_pairs_of_valid_and_test_that_are_not_dropped_are_counted(corpus: Any, mirror: Path, output: Path) -> None:
    made(corpus, mirror, output, leaks=False)
    assert "Sie sehen ihn ." in words(output / "train.de")
    total = json.loads((output / "cleaning.json").read_text())["total"]
    assert "leak" not in total["dropped"] and total["also in valid or test"] == 1 and total["kept"] == 6


def test_memory_that_runs_out_is_not_the_sentences_doing_and_nothing_is_lost(
    corpus: Any, mirror: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words_of = PairTokeniser.words

    def exhausted(self: PairTokeniser, pair: Any, cleaning: Any) -> Any:
        if pair[0] == "Yes":  # in the third block
            raise MemoryError
        return words_of(self, pair, cleaning)

    with monkeypatch.context() as context:
        context.setattr(PairTokeniser, "words", exhausted)
        with pytest.raises(OSError, match="^memory ran out: "):
            made(corpus, mirror, output)
    done = output.with_name(f"{output.name}.partial") / "words"
    assert len(list(done.iterdir())) == 2 and not output.exists()
    made(corpus, mirror, output)
    assert words(output / "train.en") == KEPT


def test_nothing_left_to_train_on(corpus: Any, mirror: Path, output: Path) -> None:
    with pytest.raises(ValueError, match="no training pairs are left: cleaning dropped all 11 pairs"):
        made(corpus, mirror, output, max_words=1)
    assert list(output.parent.iterdir()) == []
    with pytest.raises(ValueError, match="shards is 6: expected at most the 5 training pairs"):
        made(corpus, mirror, output, shards=6)


def test_dictionary_order_is_fairseqs() -> None:
    """By count, then by code point; without the special tokens, but padded with them to a multiple of eight."""
    assert dictionary_entries({"b": 2, "Z": 2, "a": 2, "c": 9, "<unk>": 5}) == [
        ("c", 9),
        ("Z", 2),
        ("a", 2),
        ("b", 2),
    ]
    assert dictionary_entries({"a": 1})[1:] == [("madeupword0000", 0), ("madeupword0001", 0), ("madeupword0002", 0)]
    names = [name for name, _ in dictionary_entries({"a": 9, "madeupword0000": 5})]
    assert names == ["a", "madeupword0000", "madeupword0001", "madeupword0002"]  # the second is a word of the text


def test_shards_share_the_pairs_and_the_dictionary(corpus: Any, mirror: Path, output: Path) -> None:
    whole = made(corpus, mirror, output.with_name("whole"))
    made(corpus, mirror, output, shards=2)
    assert words(output / "shard1/train.en") == KEPT[::2] and words(output / "shard2/train.en") == KEPT[1::2]
    assert (output / "shard1/valid.en-de.en.bin").exists() and not (output / "shard2/valid.en-de.en.bin").exists()
    for folder in (output, output / "shard1", output / "shard2"):
        assert (folder / "dict.de.txt").read_bytes() == (whole / "dict.de.txt").read_bytes()
    assert (output / "text/codes.bpe").read_bytes() == (whole / "text/codes.bpe").read_bytes()


def test_killed_at_any_moment_and_repeated_it_ends_with_the_same_bytes(corpus: Any, mirror: Path, output: Path) -> None:
    options = {"shards": 2, "bpe_dropout": 0.5}
    unbroken = made(corpus, mirror, output.with_name("unbroken"), **options)

    def job() -> None:
        prepare(corpus, output, mirror=str(mirror), options=PrepareOptions(**options))

    assert killed_until_done(job, seed=1, longest=0.05) > 3
    assert contents(output) == contents(unbroken)
    assert {path.name for path in output.parent.iterdir()} - {".tiny.lock", ".tiny.owner"} == {"unbroken", "tiny"}


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bytes(corpus: Any, mirror: Path, output: Path) -> None:
    options = {"bpe_dropout": 0.5, "shards": 3, "learn_sample": 2}
    one = made(corpus, mirror, output, **options)
    two = made(corpus, mirror, output.with_name("two"), workers=2, **options)
    assert contents(one) == contents(two)


CUT = [
    "A d@@ og r@@ un@@ s .",
    "T@@ w@@ o m@@ en r@@ u@@ n .",
    "T@@ h@@ e@@ y s@@ e@@ e h@@ i@@ m .",
    "H@@ e r@@ u@@ n@@ s .",
    "A m@@ an se@@ e@@ s a d@@ o@@ g .",
]


def test_bpe_dropout_cuts_the_training_text_alone(corpus: Any, mirror: Path, output: Path) -> None:
    whole = made(corpus, mirror, output.with_name("whole"))
    made(corpus, mirror, output, bpe_dropout=0.5)
    assert words(output / "train.en") == KEPT
    assert tokens(output / "train.en") != tokens(whole / "train.en")
    assert tokens(output / "train.en") == CUT  # each block by the seed of its number, whoever segments it when
    sizes = [[len(line.split()) for line in tokens(folder / "valid.de")] for folder in (output, whole)]
    assert sizes[0] == sizes[1]
    assert (output / "text/codes.bpe").read_bytes() == (whole / "text/codes.bpe").read_bytes()


def test_a_sample_is_every_kth_pair_that_stays(corpus: Any, mirror: Path, output: Path, make_corpus: Any) -> None:
    made(corpus, mirror, output, learn_sample=2)  # of five pairs every third: the first and the fourth
    write(mirror, "train", [TRAIN[0], TRAIN[6]])
    alone = made(make_corpus(counts={**COUNTS, "train": 2}), mirror, output.with_name("alone"))
    assert (output / "text/codes.bpe").read_bytes() == (alone / "text/codes.bpe").read_bytes()


TOKENISED = [("It &apos;s Kim Il-Sung .", "Đó là &quot; Kim &quot; ."), ("R &amp; D , yes .", "R &amp; D , vâng .")]


@pytest.mark.parametrize("entities", ["keep", "unescape"])
def test_tokenised_text_stays_and_raw_sentences_come_to_the_same(
    corpus: Any, make_corpus: Any, mirror: Path, output: Path, entities: str
) -> None:
    for split in ("train", "val", "test"):
        write(mirror, split, TOKENISED)
    defaults = PrepareDefaults(size=5, tokenised=True, cleaning=CleaningOptions(entities=entities))
    made(make_corpus(counts=dict.fromkeys(COUNTS, 2), defaults=defaults), mirror, output)
    expected = "It 's Kim Il-Sung ." if entities == "unescape" else "It &apos;s Kim Il-Sung ."
    for split in ("train", "valid", "test"):
        assert words(output / f"{split}.en")[0] == expected
    assert lines(output / "reference/test.en") == ["It's Kim Il-Sung.", "R & D, yes."]
    assert lines(output / "reference/test.de") == ['Đó là "Kim".', "R & D, vâng."]
    pipeline = TextPipeline.load(output / "text")
    assert [pipeline.encode(line) for line in lines(output / "reference/test.en")] == tokens(output / "test.en")
    assert [pipeline.decode(line) for line in tokens(output / "test.de")] == lines(output / "reference/test.de")
