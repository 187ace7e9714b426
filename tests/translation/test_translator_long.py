"""Sentences of any length: kept, cut or split, and batched by length."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from rskip.text import Dictionary, Tokenizer, TokenText
from rskip.transformer import Transformer, TransformerConfig
from rskip.translation import Translator
from rskip.translation.search import length_batches
from rskip.translation.segments import split
from tests.checkpoint.conftest import both

WORDS = Dictionary([f"w{number}" for number in range(20)])


def tiny(**settings: Any) -> Translator:
    """A translator of random words w0 ... w19."""
    torch.manual_seed(5)
    sizes = both(embed_dim=16, ffn_embed_dim=24, attention_heads=2, layers=1)
    config = TransformerConfig(source_vocabulary=len(WORDS), target_vocabulary=len(WORDS), **sizes | settings)
    model = Transformer(config).eval().requires_grad_(False)
    return Translator(model, Tokenizer(TokenText("a", "b"), WORDS, WORDS))


def words(count: int) -> str:
    return " ".join(f"w{number * number % 19}" for number in range(count))


LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True, "max_source_positions": 12}
SHORT = {"max_length_a": 0.0, "max_length_b": 5}


def test_a_sentence_longer_than_any_in_training_is_translated_whole() -> None:
    translator = tiny(max_source_positions=10, max_target_positions=10)
    found = translator.translate([words(3000), words(4)], too_long="keep", **SHORT)
    assert not any("split" in note for each in found for note in each.notes)
    assert [len(each.source_tokens) for each in found] == [3000, 4]
    alone = translator.translate([words(4)], **SHORT)[0]
    assert found[1].hypotheses[0].tokens == alone.hypotheses[0].tokens
    # what comes last has an effect
    other = translator.translate([words(2999) + " w3"], too_long="keep", **SHORT)[0]
    assert other.score != pytest.approx(found[0].score, abs=1e-7)


def test_a_model_with_learned_positions_says_what_is_too_long_for_it() -> None:
    translator = tiny(**LEARNED)
    whole = translator.translate([words(11)], **SHORT)[0]
    assert len(whole.source_tokens) == 11
    message = r"sentence 3: it has 13 tokens \(including its end\), and at most 12 can be translated: .*too_long"
    with pytest.raises(ValueError, match=message):
        translator.translate([words(11), "", words(12)], too_long="keep", **SHORT)
    with pytest.raises(ValueError, match="at most 12 can"):
        translator.translate([words(12)], max_source_tokens=100, too_long="keep", **SHORT)
    with pytest.raises(ValueError, match="sentence 1: it has 9 tokens .* at most 8 can"):
        translator.translate([words(8)], max_source_tokens=8, too_long="keep", **SHORT)


@pytest.mark.parametrize("settings", [LEARNED, {"max_source_positions": 12}])
def test_cut(settings: dict[str, Any]) -> None:
    translator = tiny(**settings)
    found = translator.translate([words(30), words(11)], too_long="cut", **SHORT)
    assert [each.notes[:1] for each in found] == [
        ("cut after 11 of its 30 tokens",),
        ("its translation reached the max length, 5 tokens (max_length_a, max_length_b)",),
    ]
    assert found[0].hypotheses == found[1].hypotheses and found[0].source == words(30)
    shorter = translator.translate([words(30)], too_long="cut", max_source_tokens=5, **SHORT)[0]
    assert shorter.source_tokens == tuple(words(4).split())


def test_split_translates_the_parts_and_joins_them() -> None:
    translator = tiny(**LEARNED)
    settings = SHORT | {"nbest": 2, "attention": True, "token_scores": True, "length_penalty": 0.6}
    parts = [words(30).split()[start : start + 11] for start in (0, 11, 22)]
    whole = translator.translate([words(30)], **settings)[0]  # by default
    alone = translator.translate([" ".join(part) for part in parts], **settings)
    assert whole.notes[0] == "split into 3 parts, since it has 30 tokens"
    assert whole.source_tokens == tuple(words(30).split())
    for rank, hypothesis in enumerate(whole.hypotheses):
        pieces = [each.hypotheses[rank] for each in alone]
        assert hypothesis.text == " ".join(piece.text for piece in pieces)
        assert hypothesis.tokens == sum((piece.tokens for piece in pieces), ())
        lengths = [len(piece.tokens) + 1 for piece in pieces]
        total = sum(piece.score * length**0.6 for piece, length in zip(pieces, lengths, strict=True))
        assert hypothesis.score == pytest.approx(total / sum(lengths) ** 0.6)
        scores = [score for piece in pieces for score in piece.token_scores[:-1]] + [pieces[-1].token_scores[-1]]
        assert hypothesis.token_scores == pytest.approx(scores, abs=1e-5)
        shifted = [
            (source + 11 * number, target + sum(length - 1 for length in lengths[:number]))
            for number, piece in enumerate(pieces)
            for source, target in piece.alignment
        ]
        assert hypothesis.alignment == tuple(shifted)
        assert hypothesis.attention is None
    prefixed = translator.translate([words(30)], too_long="split", prefixes=["w7 w7"], **SHORT)[0]
    assert prefixed.hypotheses[0].tokens[:2] == ("w7", "w7")
    assert (
        prefixed.hypotheses[0].tokens[5:]
        == translator.translate([" ".join(part) for part in parts[1:]], **SHORT)[0].hypotheses[0].tokens
        + translator.translate([" ".join(parts[2])], **SHORT)[0].hypotheses[0].tokens
    )


@pytest.mark.parametrize(
    ("tokens", "room", "expected"),
    [
        ("a b c", 3, ["a b c"]),
        ("a . b c . d e", 4, ["a .", "b c .", "d e"]),
        ("a . b . c . d e f", 6, ["a .", "b .", "c .", "d e f"]),
        ("a " * 600, 1023, ["a " * 249 + "a"] * 2 + ["a " * 99 + "a"]),
        ("a ? ! b c", 3, ["a ? !", "b c"]),
        ("&quot; a . &quot; ) b c", 6, ["&quot; a . &quot; )", "b c"]),
        ("a . )", 2, ["a .", ")"]),
        ("ab@@ c d e@@ f g", 4, ["ab@@ c d", "e@@ f g"]),
        ("a@@ b@@ c@@ d@@ e", 2, ["a@@ b@@", "c@@ d@@", "e"]),
        ("\u2581a b \u2581c d e \u2581f", 4, ["\u2581a b", "\u2581c d e \u2581f"]),
        ("\u2581a . \u2581b \u2581c", 3, ["\u2581a .", "\u2581b \u2581c"]),
        ("a b c d", 1, ["a", "b", "c", "d"]),
    ],
)
def test_where_sentences_are_split(tokens: str, room: int, expected: list[str]) -> None:
    assert [" ".join(piece) for piece in split(tokens.split(), room)] == expected


def test_batches_hold_what_fits_longest_first() -> None:
    lengths = [3, 10, 1, 3, 2, 10, 40]
    assert length_batches(lengths, max_tokens=20, beam=4) == [[6], [1, 5], [0, 3, 4, 2]]
    assert length_batches(lengths, max_tokens=20, beam=1) == [[6], [1, 5], [0, 3, 4, 2]]
    assert length_batches(lengths, max_tokens=20, beam=8) == [[6], [1], [5], [0, 3, 4], [2]]
    assert length_batches(lengths, max_tokens=1, beam=4) == [[6], [1], [5], [0], [3], [4], [2]]
    assert length_batches([], max_tokens=20, beam=4) == []


def test_too_little_memory_is_told_with_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = tiny()
    for error, expected in (
        (MemoryError(), "not enough memory on the device for 2 sentences of up to 5 tokens: give a smaller max_tokens"),
        (torch.OutOfMemoryError("CUDA out of memory"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"), "not enough memory"),
        (RuntimeError("shapes differ"), "^shapes differ$"),
    ):
        monkeypatch.setattr(translator.model, "encode", Mock(side_effect=error))
        with pytest.raises((ValueError, RuntimeError), match=expected):
            translator.translate([words(4), words(3)])
