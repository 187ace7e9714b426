"""Scores, by hand and by sacreBLEU's own command; the paired bootstrap; fairseq-generate's output."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from inspect import signature
from itertools import product

import pytest

from rskip.translation import TranslatedHypothesis, Translation
from rskip.translation.metrics import (
    join_subwords,
    paired_bootstrap,
    read_generated,
    read_hypotheses,
    read_lines,
    says_the_same,
    score,
)
from rskip.translation.translation import line_form

HYPOTHESES = [
    "The dog bit the man.",
    "It wasn't surprising.",
    "The man had just bitten him.",
    "Ein Hund, der läuft",
    "",
]
REFERENCES = [
    "The dog bit the man.",
    "It was not unexpected.",
    "The man bit him first.",
    "Ein Hund, der schnell läuft.",
    "Ja!",
]


def test_same_scores_and_signatures_as_sacrebleus_command(tmp_path):
    (tmp_path / "hyp").write_text("\n".join(HYPOTHESES) + "\n", encoding="utf-8")
    (tmp_path / "ref").write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    options = ["-m", "bleu", "chrf", "-w", "10", "-f", "json"]
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "hyp", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    bleu, chrf = json.loads(done.stdout)
    scores = score(HYPOTHESES, REFERENCES)
    for name, expected in (("sacrebleu", bleu), ("chrf", chrf)):
        assert scores[name] == (pytest.approx(expected["score"], abs=1e-9), expected["signature"])
    assert "case:mixed" in bleu["signature"]
    assert "tok:13a" in bleu["signature"]


def test_tokenised_bleu_is_of_the_tokens_as_they_are():
    # n-gram precisions 4/5, 3/4, 2/3, 1/2: their product is 1/5, and no brevity penalty.
    scores = score(["x"], ["x"], tokenised_hypotheses=["a b c d e"], tokenised_references=["a b c d f"])
    assert scores["tokenised_bleu"].value == pytest.approx(100 * 0.2**0.25)
    assert "tok:none" in scores["tokenised_bleu"].signature
    glued = score(["x"], ["x"], tokenised_hypotheses=["a b c d e."], tokenised_references=["a b c d e ."])
    assert glued["tokenised_bleu"].value < 100
    assert "tokenised_bleu" not in score(["x"], ["x"])


def test_perfect_and_exact():
    scores = score(["A dog runs fast .", " b ", "C", "d"], ["A dog runs fast .", "b", "c", "D."])
    assert scores["accuracy"] == (50.0, None)
    perfect = score(REFERENCES, REFERENCES)
    assert perfect["sacrebleu"].value == pytest.approx(100)
    assert perfect["chrf"].value == pytest.approx(100)
    assert perfect["accuracy"].value == 100.0


def test_nothing_to_score_and_unequal_lines():
    with pytest.raises(ValueError, match="no references to score against"):
        score([], [])
    with pytest.raises(ValueError, match="1 hypotheses but 2 references"):
        score(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="1 hypotheses but 2 references"):
        score(["a", "b"], ["a", "b"], tokenised_hypotheses=["a"], tokenised_references=["a", "b"])
    with pytest.raises(ValueError, match="1 hypotheses but 2 references"):
        paired_bootstrap(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(ValueError, match="0 bootstrap samples: expected"):
        paired_bootstrap(["a"], ["a"], ["a"], samples=0)


def spoilt(references: list[str], share: float, seed: int) -> list[str]:
    """The references, a share of them with half of their words replaced."""
    draw = random.Random(seed)
    return [
        " ".join(word if draw.random() < 0.5 else "no" for word in line.split()) if draw.random() < share else line
        for line in references
    ]


@pytest.fixture(scope="module")
def references() -> list[str]:
    draw = random.Random(0)
    words = [f"w{number}" for number in range(50)]
    return [" ".join(draw.choices(words, k=12)) for _ in range(200)]


def test_bootstrap_finds_a_planted_difference(references):
    better, worse = spoilt(references, 0.2, seed=1), spoilt(references, 0.6, seed=2)
    comparisons = {each.metric: each for each in paired_bootstrap(better, worse, references, samples=300)}
    assert comparisons.keys() == {"BLEU", "chrF2"}
    for name, metric in (("BLEU", "sacrebleu"), ("chrF2", "chrf")):
        each = comparisons[name]
        assert each.system == pytest.approx(score(better, references)[metric].value)
        assert each.baseline == pytest.approx(score(worse, references)[metric].value)
        assert each.p_value == pytest.approx(1 / 301)
        assert each.system - each.system_mean == pytest.approx(0, abs=2)
        assert 0 < each.system_interval < 10
        assert each.system_mean - each.system_interval > each.baseline_mean + each.baseline_interval
        assert "bs:300" in each.signature
        assert "seed:12345" in each.signature


def test_bootstrap_finds_no_difference_between_equals(references):
    one, other = spoilt(references, 0.4, seed=3), spoilt(references, 0.4, seed=4)
    assert all(each.p_value > 0.05 for each in paired_bootstrap(one, other, references, samples=300))
    assert [each.p_value for each in paired_bootstrap(one, one, references, samples=100)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ("ein schö@@ n@@ er Tag .", "ein schöner Tag ."),
        ("ab@@", "ab"),
        ("\u2581ein \u2581Ta g .", "ein Tag."),
        ("ein Tag", "ein Tag"),
        ("▁ <0x35> ▁ <0xE2> <0x82> <0xAC> ▁<0x3x>", "5 € <0x3x>"),
        ("", ""),
    ],
)
def test_join_subwords(tokens, words):
    assert join_subwords(tokens) == words


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("a man , in a blue shirt .", "A man, in a blue shirt."),
        ("H\u00f4m nay tr\u1eddi \u0111\u1eb9p", "Ho\u0302m nay tro\u031b\u0300i \u0111e\u0323p"),  # Vietnamese in NFD
        ("\u0e17\u0e4d\u0e32\u0e07\u0e32\u0e19", "\u0e17\u0e33\u0e07\u0e32\u0e19"),  # Thai
        ("2026\u5e74\u306b", "\uff12\uff10\uff12\uff16\u5e74\u306b"),  # Japanese, with wide digits
        ("\u6211\u7231 <unk>", "\u6211\u7231\u4f60\u4eec"),
        ("<unk>", "Nairobi"),
        ("", ""),
    ],
)
def test_sentences_that_say_the_same(printed, sentence):
    assert says_the_same(printed, sentence)


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("a man , in a blue shirt .", "Two dogs are playing in the snow."),
        ("a man <unk> in a blue shirt .", "Two dogs are playing in the snow."),
        ("\u6211\u7231\u4f60", "\u5929\u6c14\u5f88\u597d"),
        ("", "Two dogs."),
    ],
)
def test_sentences_that_say_something_else(printed, sentence):
    assert not says_the_same(printed, sentence)


def test_lines_end_at_newlines_alone(tmp_path):
    (tmp_path / "a").write_bytes("\ufeffeins\u2028zwei\x0bdrei\r\n\nvier".encode())
    assert read_lines(tmp_path / "a") == ["eins\u2028zwei\x0bdrei", "", "vier"]
    (tmp_path / "a").write_bytes(b"\n")
    assert read_lines(tmp_path / "a") == [""]


def test_unreadable_lines(tmp_path):
    (tmp_path / "bad").write_bytes(b"ok\nauch ok\nfalsch \xff\n")
    with pytest.raises(ValueError, match="bad: line 3 is not valid UTF-8"):
        read_lines(tmp_path / "bad")
    (tmp_path / "wide").write_bytes("eins\nzwei\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match="wide: line 1 is UTF-16: convert the text to UTF-8"):
        read_lines(tmp_path / "wide")
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty is empty"):
        read_lines(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no file .*none"):
        read_lines(tmp_path / "none")


def test_generated_is_put_in_order_and_the_best_of_several_counts(tmp_path):
    log = tmp_path / "generate-test.txt"
    log.write_text(
        "2026-01-01 | INFO | loading\n"
        "S-2\tc@@ c\nT-2\tC@@ C\nH-2\t-0.5\tC@@ c\nD-2\t-0.5\tignored\nP-2\t-0.1 -0.2\nH-2\t-0.9\tsecond\n"
        "S-0\ta\nT-0\tA\nH-0\t-1.5\tA\tB\n"
        "S-1\tb\nT-1\t\nH-1\t-inf\t\n"
        "Generate test with beam=4: BLEU4 = 1.00\n",
        encoding="utf-8",
    )
    generated = read_generated(log)
    assert generated.hypotheses == ["A\tB", "", "C@@ c"]
    assert generated.references == ["A", "", "C@@ C"]
    assert generated.sources == ["a", "b", "c@@ c"]
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join(reversed(lines)), encoding="utf-8")
    assert read_generated(log) == generated
    log.write_text("H-0\tnan\tbroken\nH-0\t-3\tsame\nH-0\t-3.0\tas good\n", encoding="utf-8")
    assert read_generated(log).hypotheses == ["same"]


def test_the_output_of_two_runs_is_refused(tmp_path):
    log = tmp_path / "log"
    for line in ("S-0\ta\n", "T-0\tb\n"):
        log.write_text(f"{line}H-0\t-1\tb\n" * 2)
        with pytest.raises(ValueError, match=rf"log has {line[0]}-0 twice: expected the output of one run"):
            read_generated(log)


def translation(*hypotheses: tuple[str, float]) -> Translation:
    found = tuple(TranslatedHypothesis(text=text, score=value, tokens=()) for text, value in hypotheses)
    return Translation(source="a", hypotheses=found)


VALUES = {"bool": (False, True), "int": (1, 2)}  # of each argument of line_form
FORMS = [
    dict(zip(signature(line_form).parameters, values, strict=True))
    for values in product(*(VALUES[each.annotation] for each in signature(line_form).parameters.values()))
]


@pytest.mark.parametrize("arguments", FORMS, ids=str)
def test_every_output_of_translate_is_read(arguments, tmp_path):
    found = [translation(("Ein\tHund", -0.25), ("Hund", -2.5))] * 10 + [
        translation(("", 0.0)),
        translation(("12.5\t3", -math.inf)),
    ]
    form = line_form(**arguments)
    written = [form(each, number) for number, each in enumerate(found, start=1)]
    lines = "".join(written).splitlines(keepends=True)
    for order in (lines, lines[::-1] if len(lines) > len(found) else lines):
        (tmp_path / "output").write_text("".join(order))
        assert read_hypotheses(tmp_path / "output") == [each.text for each in found], (
            "read_hypotheses in rskip/translation/metrics.py can't read this form of line_form"
        )


def test_text_that_only_looks_like_scores_stays(tmp_path):
    for text in ("0.1234\tEin Hund\nEin Hund\n", "0.12\tEin Hund\n", '{"source": "a"}\nb\n'):
        (tmp_path / "output").write_text(text)
        assert read_hypotheses(tmp_path / "output") == text.splitlines()
    (tmp_path / "output").write_text("1\t-0.1000\ta\n3\t-0.1000\tb\n")
    with pytest.raises(ValueError, match=r"no translation of sentence 1 \(1 of 3 missing\)"):
        read_hypotheses(tmp_path / "output")
    (tmp_path / "output").write_text('{"source": "a"}\n')
    with pytest.raises(ValueError, match="line 1 is not what rskip translate --format json writes"):
        read_hypotheses(tmp_path / "output")


def test_generated_without_references_cut_off_or_another_file(tmp_path):
    log = tmp_path / "log"
    log.write_text("H-1\t0\tb\nH-0\t0\ta\n")
    assert read_generated(log).references is None
    log.write_text("H-0\t0\ta\nH-3\t0\tb\n")
    with pytest.raises(ValueError, match=r"no translation of sentence 1 \(2 of 4 missing\)"):
        read_generated(log)
    log.write_text("just text\n")
    with pytest.raises(ValueError, match="no H lines: expected what fairseq-generate prints"):
        read_generated(log)
