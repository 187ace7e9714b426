"""Subword units and back."""

from pathlib import Path

import pytest

from rskip.text.subwords import BytePairEncoding, SentencePiece, subwords_class

TEXT = ["low low low low lower", "new newer wider", "new"]


def test_bpe_learns_the_most_frequent_pairs_first(tmp_path: Path) -> None:
    bpe = BytePairEncoding.learn(TEXT, size=2)
    bpe.save(tmp_path / "codes")
    # l-o and o-w both come five times at first; ties go to the pair that sorts last.
    assert (tmp_path / "codes").read_text() == "#version: 0.2\nl o\nlo w</w>\n"
    assert bpe.segment("low lower") == "low lo@@ w@@ e@@ r"
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
    ours.save(tmp_path / "codes")
    theirs = SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=str(tmp_path / "codes")))
    for words in ("low lowest ewer", "neuer &quot; @-@"):
        assert ours.segment(words) == theirs.encode(words)
        assert ours.join(ours.segment(words)) == theirs.decode(theirs.encode(words))


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ("", "not BPE codes: expected a line '#version: 0.2'"),
        ("l o\n", "not BPE codes"),
        ("#version: 0.2\nl o\nl o w\n", "line 3 of the BPE codes is not a merge of two units: 'l o w'"),
    ],
)
def test_bpe_codes_that_are_not(codes: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BytePairEncoding(codes)


@pytest.mark.parametrize("text", [[], ["", " "], ["a b c"], ["ab cd"]])
def test_bpe_needs_text(text: list[str]) -> None:
    with pytest.raises(ValueError, match="training text is too small"):
        BytePairEncoding.learn(text, size=10)


SENTENCES = [f"The {noun} sees {count} dogs." for noun in ("man", "girl", "cat") for count in range(30)]


def test_sentencepiece_joins_what_it_segments_and_is_the_same_each_time(tmp_path: Path) -> None:
    pieces = SentencePiece.learn(SENTENCES, size=60)
    SentencePiece.learn(SENTENCES, size=60).save(tmp_path / "again")
    pieces.save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == (tmp_path / "again").read_bytes()
    for words in ("The girl sees 17 dogs.", "dogs see The cat."):
        units = pieces.segment(words)
        assert units.startswith("\u2581") and len(units.split(" ")) >= len(words.split())
        assert pieces.join(units) == words
        assert SentencePiece.load(tmp_path / "model").segment(words) == units


def test_sentencepiece_refuses_a_size() -> None:
    with pytest.raises(ValueError, match="SentencePiece could not learn 3 units"):
        SentencePiece.learn(SENTENCES, size=3)


def test_unknown_units() -> None:
    with pytest.raises(ValueError, match="unknown subword units 'wordpiece': expected one of bpe,"):
        subwords_class("wordpiece")
