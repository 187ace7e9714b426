"""Compound-split BLEU: the public scripts' Perl, Moses' definition, fairseq's scorer, values by hand."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections import Counter

import pytest

from rskip.translation.compound_split import (
    GERMAN_TOKENS,
    OWN_TOKENS,
    compound_split_bleu,
    german_words,
    split_compounds,
)
from rskip.translation.metrics import score

SPLIT = r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"  # what both scripts run by `perl -ple`


@pytest.mark.parametrize(
    ("words", "split"),
    [
        ("a rich-text format", "a rich ##AT##-##AT## text format"),
        ("Nord-Süd und Süd-Nord", "Nord ##AT##-##AT## Süd und Süd ##AT##-##AT## Nord"),
        ("- a -b c- --", "- a -b c- --"),
        ("a - b", "a - b"),
        # a match takes the letters beside it, so that a letter between two hyphens counts for the first alone ...
        ("a-b-c-d", "a ##AT##-##AT## b-c ##AT##-##AT## d"),
        ("Baden-Württemberg-Tag", "Baden ##AT##-##AT## Württemberg ##AT##-##AT## Tag"),
        # ... unless it has several bytes
        ("a-ü-c", "a ##AT##-##AT## ü ##AT##-##AT## c"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("1990-1995 --- x", "1990 ##AT##-##AT## 1995 - ##AT##-##AT## - x"),
        ("rich @-@ text", "rich @ ##AT##-##AT## @ text"),
        ("a\u00a0-b", "a\u00a0 ##AT##-##AT## b"),  # to Perl's bytes no white space
        ("", ""),
    ],
)
def test_split_compounds(words, split):
    assert split_compounds(words) == split
    if shutil.which("perl"):
        assert perl([words]) == [split]


def perl(lines: list[str]) -> list[str]:
    text = "".join(line + "\n" for line in lines).encode()
    done = subprocess.run(["perl", "-ple", SPLIT], input=text, capture_output=True, check=True)
    return done.stdout.decode().split("\n")[:-1]


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """The definition of Moses' multi-bleu.perl, for one reference."""
    correct, total, lengths = [0] * 4, [0] * 4, [0, 0]
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words = [re.findall(r"\S+", line) for line in (hypothesis, reference)]
        lengths = [length + len(side) for length, side in zip(lengths, words, strict=True)]
        for n in range(1, 5):
            theirs, ours = (
                Counter(tuple(side[start : start + n]) for start in range(len(side) - n + 1))
                for side in reversed(words)
            )
            total[n - 1] += sum(ours.values())
            correct[n - 1] += sum((ours & theirs).values())
    if not all(correct):
        return 0.0
    penalty = math.exp(1 - lengths[1] / lengths[0]) if lengths[0] < lengths[1] else 1.0
    return 100 * penalty * math.exp(sum(math.log(c / t) for c, t in zip(correct, total, strict=True)) / 4)


def test_values_by_hand():
    # As words with their compound split: 7 of 8 match, 5 of 7 pairs, 3 of 6 triples, 2 of 5 fours: together 1/8.
    hypothesis, reference = "die Nord-Süd Achse ist neu .", "die Nord-Süd Achse bleibt neu ."
    found = compound_split_bleu([hypothesis], [reference], tokens=OWN_TOKENS)
    assert found[0] == pytest.approx(100 * (1 / 8) ** 0.25, abs=1e-9)
    # Shorter than its reference by one of six words: e^(1 - 6/5), and every n-gram matches.
    found = compound_split_bleu(["a-b c d"], ["a-b c d e"], tokens=OWN_TOKENS)
    assert found[0] == pytest.approx(100 * math.exp(-1 / 5), abs=1e-9)
    # Nothing is smoothed: no four words match.
    assert compound_split_bleu(["a b c d"], ["a b c e"], tokens=OWN_TOKENS)[0] == 0
    assert multi_bleu(["a b c d"], ["a b c e"]) == 0


def test_german_words():
    """Moses' rules: dashes stay, entities are written, `z.B.` and single letters keep their full stop."""
    raw = ["Der „Kampf“ & die Süd-Nord-Achse…", 'Er sagt: "Das ist’s", z.B. 3,5 km/h – «so».', "Ａ：３％", ""]
    assert german_words(raw) == [
        "Der „ Kampf &quot; &amp; die Süd-Nord-Achse ...",
        "Er sagt : &quot; Das ist &apos; s &quot; , z.B. 3,5 km / h – « so » .",
        "Ａ : 3 %",
        "",
    ]


def test_scores_are_apart_from_sacrebleu():
    hypotheses, references = (
        ["Die Nord-Süd-Achse ist neu.", "Ja, genau."],
        ["Die Nord-Süd-Achse bleibt neu.", "Ja, genau."],
    )
    words = ["Die Nord @-@ Süd @-@ Achse ist neu .", "Ja , genau ."]
    reference_words = ["Die Nord @-@ Süd @-@ Achse bleibt neu .", "Ja , genau ."]
    tokens = {"tokenised_hypotheses": words, "tokenised_references": reference_words}
    plain = score(hypotheses, references, **tokens)
    assert list(plain) == ["sacrebleu", "chrf", "tokenised_bleu", "accuracy"]
    scores = score(hypotheses, references, **tokens, compound_split=True, compound_split_own=True)
    assert {name: scores[name] for name in plain} == plain
    raw = [
        [f"Die Nord ##AT##-##AT## Süd ##AT##-##AT## Achse {verb} neu .", "Ja , genau ."] for verb in ("ist", "bleibt")
    ]
    assert scores["compound_split_bleu"].value == pytest.approx(multi_bleu(*raw), abs=1e-9)
    own = [[line.replace("@-@", "@ ##AT##-##AT## @") for line in side] for side in (words, reference_words)]
    assert scores["compound_split_own_bleu"].value == pytest.approx(multi_bleu(*own), abs=1e-9)
    pattern = r"nrefs:1\|case:mixed\|eff:no\|tok:{}\|smooth:none\|version:[\d.]+\|comparable-with-sacreBLEU:no"
    for name, kind in (
        ("compound_split_bleu", GERMAN_TOKENS + r"\|split:##AT##-##AT##\|sacremoses:[\d.]+"),
        ("compound_split_own_bleu", OWN_TOKENS + r"\|split:##AT##-##AT##"),
    ):
        assert re.fullmatch(pattern.format(kind), scores[name].signature)
