"""The output of fairseq-generate and of `rskip translate`, read back; subwords joined to words."""

from __future__ import annotations

import math
from inspect import signature
from itertools import product

import pytest

from rskip.translation import TranslatedHypothesis, Translation
from rskip.translation.generated import join_subwords, read_generated, read_hypotheses
from rskip.translation.translation import line_form


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
        translation(("Zwei Hunde.", -0.3627), ("Zwei.", -0.3598)),  # of two sentences
        translation(("", 0.0)),
        translation(("12.5\t3", -math.inf)),
    ]
    form = line_form(**arguments)
    written = [form(each, number) for number, each in enumerate(found, start=1)]
    for order in (written, written[::-1] if "\n" in written[0][:-1] else written):  # numbers say the order
        (tmp_path / "output").write_text("".join(order))
        assert read_hypotheses(tmp_path / "output") == [each.text for each in found], (
            "read_hypotheses in rskip/translation/generated.py can't read this form of line_form"
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
    for content, message in (
        (f"H-{10**12}\t0\ta\n", r"no translation of sentence 0 \(1000000000000 of 1000000000001 missing\)"),
        (f"H-{'9' * 5000}\t0\ta\n", "has no H lines"),
        ("H-0\t0\ta\nH-3\t0\tb\n", r"no translation of sentence 1 \(2 of 4 missing\)"),
        ("just text\n", "no H lines: expected what fairseq-generate prints"),
    ):
        log.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_generated(log)
