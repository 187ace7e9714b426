"""Subword units and back."""

import io
import random
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from rskip.text.subwords import BytePairEncoding, SentencePiece, SentencePieceBPE, subwords_class

TEXT = ["low low low low lower", "new newer wider", "new"]


def test_bpe_learns_the_most_frequent_pairs_first(tmp_path: Path) -> None:
    bpe = BytePairEncoding.learn(TEXT, size=2)
    (tmp_path / "codes").write_bytes(bpe.files()["codes.bpe"])
    # l-o and o-w both come five times at first; ties go to the pair that sorts last.
    assert (tmp_path / "codes").read_text() == "#version: 0.2\nl o\nlo w</w>\n"
    assert bpe.segment("low lower") == "low lo@@ w@@ e@@ r"
    assert BytePairEncoding.load(tmp_path / "codes").segment("low lower") == "low lo@@ w@@ e@@ r"
    (tmp_path / "codes").write_bytes(b"\xef\xbb\xbf#version: 0.2\r\nl o\r\nlo w</w>\r\n")  # from a Windows editor
    assert BytePairEncoding.load(tmp_path / "codes").segment("low lower") == "low lo@@ w@@ e@@ r"


def test_bpe_joins_what_it_segments() -> None:
    bpe = BytePairEncoding.learn(TEXT, size=4)
    for words in ("low", "lowest ewer", "völlig neu &apos;s @-@ .", ""):
        assert bpe.join(bpe.segment(words)) == words
    assert bpe.join("lo@@ w and lo@@") == "low and lo"


def test_bpe_agrees_with_fairseq(tmp_path: Path) -> None:
    pytest.importorskip("fairseq")
    from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

    ours = BytePairEncoding.learn(TEXT, size=4)
    (tmp_path / "codes").write_bytes(ours.files()["codes.bpe"])
    theirs = SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=str(tmp_path / "codes")))
    for words in ("low lowest ewer", "neuer &quot; @-@"):
        assert ours.segment(words) == theirs.encode(words)
        assert ours.join(ours.segment(words)) == theirs.decode(theirs.encode(words))


def test_bpe_learns_what_subword_nmt_learns() -> None:
    """Of few letters and counts, so that many pairs are as frequent as others."""
    from subword_nmt.learn_bpe import learn_bpe

    draw = random.Random(0)
    for size in (5, 60, 400):
        counts = {"".join(draw.choices("abcd", k=draw.randint(1, 9))): draw.randint(1, 5) for _ in range(size)}
        codes = io.StringIO()
        learn_bpe([f"{word} {count}" for word, count in counts.items()], codes, 200, is_dict=True)
        assert BytePairEncoding.learn_from_counts(counts, size=200).files()["codes.bpe"].decode() == codes.getvalue()


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ("", "not BPE codes .*: expected a line '#version: 0.2'"),
        ("#version: 9.9\nl o\n", "not BPE codes .*9.9"),
        ("l o\n", "not BPE codes"),
        ("#version: 0.2\nl o\nl o w\n", "not BPE codes .*l o w.* two units"),
    ],
)
def test_bpe_codes_that_are_not(codes: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BytePairEncoding(codes)


def test_bpe_dropout_leaves_merges_out_and_what_is_remembered_whole() -> None:
    bpe = BytePairEncoding.learn(TEXT, size=4)
    whole = bpe.segment("low lower newer")
    before = random.getstate()
    first, again = bpe.with_dropout(0.5, seed=1), bpe.with_dropout(0.5, seed=1)
    cut = [first("low lower newer") for _ in range(50)]
    assert cut[:2] == ["l@@ o@@ w lo@@ w@@ e@@ r n@@ e@@ w@@ er", "l@@ o@@ w lo@@ w@@ e@@ r n@@ e@@ w@@ e@@ r"]
    assert len(set(cut)) > 5 and {bpe.join(units) for units in cut} == {"low lower newer"}
    assert [again("low lower newer") for _ in range(50)] == cut
    assert random.getstate() == before  # the global generator, which other threads use
    assert bpe.segment("low lower newer") == whole == BytePairEncoding.learn(TEXT, size=4).segment("low lower newer")


def test_bpe_segments_as_subword_nmt_does_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from subword_nmt.apply_bpe import BPE

    monkeypatch.setattr("rskip.text.subwords._REMEMBERED_WORDS", 2)
    ours = BytePairEncoding.learn(TEXT, size=4)
    ours_codes = io.StringIO(ours._codes)
    theirs = BPE(ours_codes)
    for words in ("low lower newest", "a", "", "wider  low", "low lower low newer lowest", "&apos;s low @-@ new"):
        assert ours.segment(words) == theirs.segment(words)


@pytest.mark.parametrize("reserved", ["<s>", "<pad>", "</s>", "<unk>"])
def test_words_that_dictionaries_reserve_become_letters(reserved: str) -> None:
    text = [f"{reserved} x{reserved}y {reserved}"] * 40
    bpe, pieces = BytePairEncoding.learn(text, size=20), SentencePieceBPE.learn(text, size=40)
    letters = "@@ ".join(reserved)
    assert bpe.segment(reserved) == letters and bpe.join(letters) == reserved
    assert bpe.with_dropout(0.0, seed=1)(f"x {reserved}") == f"x {letters}"
    assert reserved not in pieces.segment(text[0]).split(" ")
    assert pieces.join(pieces.segment(text[0])) == text[0]


@pytest.mark.parametrize("text", [[], ["", " "], ["a b c"], ["ab cd"]])
def test_bpe_needs_text(text: list[str]) -> None:
    with pytest.raises(ValueError, match="training text is too small"):
        BytePairEncoding.learn(text, size=10)


SENTENCES = [f"The {noun} sees {count} dogs." for noun in ("man", "girl", "cat") for count in range(30)]


def test_sentencepiece_joins_what_it_segments_and_is_the_same_each_time(tmp_path: Path) -> None:
    pieces = SentencePiece.learn(SENTENCES, size=60)
    (tmp_path / "again").write_bytes(SentencePiece.learn(SENTENCES, size=60).files()["sentencepiece.model"])
    (tmp_path / "model").write_bytes(pieces.files()["sentencepiece.model"])
    assert (tmp_path / "model").read_bytes() == (tmp_path / "again").read_bytes()
    for words in ("The girl sees 17 dogs.", "dogs see The cat."):
        units = pieces.segment(words)
        assert units.startswith("\u2581") and len(units.split(" ")) >= len(words.split())
        assert pieces.join(units) == words
        assert SentencePiece.load(tmp_path / "model").segment(words) == units


def test_sentencepiece_by_byte_pair_encoding(tmp_path: Path) -> None:
    pieces = SentencePieceBPE.learn(SENTENCES, size=60)
    (tmp_path / "model").write_bytes(pieces.files()["sentencepiece.model"])
    sentence = "The girl sees 17 dogs."
    assert pieces.join(pieces.segment(sentence)) == sentence
    assert pieces.segment("The The dogs") == "\u2581The \u2581The \u2581dogs"
    assert subwords_class("sentencepiece-bpe").load(tmp_path / "model").segment(sentence) == pieces.segment(sentence)
    assert SentencePiece.load(tmp_path / "model").segment(sentence) == pieces.segment(sentence)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"byte_fallback": True, "vocab_size": 330},
        {"add_dummy_prefix": False},
        {"normalization_rule_name": "nmt_nfkc_cf"},
        {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        {"user_defined_symbols": ["<sep>"], "control_symbols": ["<2de>"]},
    ],
)
def test_sentencepiece_joins_as_sentencepiece_decodes(settings: dict[str, Any]) -> None:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=model, hard_vocab_limit=False, num_threads=1, minloglevel=2,
        **{"vocab_size": 60, **settings},
    )  # fmt: skip
    units = SentencePiece(model.getvalue())
    theirs = SentencePieceProcessor(model_proto=model.getvalue())
    for text in ("The girl sees 5 € and 😀", "Ｔｈｅ ½  cat<sep> sees <2de>", "<unk> ▁ </s>", ""):
        assert units.join(units.segment(text)) == theirs.decode(theirs.encode(text, out_type=str))


def test_sentencepiece_joins_bytes_and_drops_control_units() -> None:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=model, hard_vocab_limit=False, num_threads=1, minloglevel=2,
        vocab_size=330, byte_fallback=True, control_symbols=["<2de>"],
    )  # fmt: skip
    join = SentencePiece(model.getvalue()).join
    assert join("<2de> ▁ <0x35> ▁ <0xE2> <0x82> <0xAC> .") == "5 €."
    assert join("▁ a ▁ <0xE2> ▁ b ▁") == "a � b "
    # units that the model lacks are joined as before
    assert join("▁Katze <unk> ▁<unk> ▁Kater madeupword0000") == " Katze<unk> <unk> Katermadeupword0000"


def test_sentencepiece_refuses_a_size() -> None:
    with pytest.raises(ValueError, match="not learn 3 units: the text's characters alone need .*; give a larger"):
        SentencePiece.learn(SENTENCES, size=3)
