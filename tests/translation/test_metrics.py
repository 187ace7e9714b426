"""Scores, by hand and by sacreBLEU's own command; the paired bootstrap."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from rskip.translation.metric_table import METRICS
from rskip.translation.metrics import paired_bootstrap, score

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


def test_the_table_lists_every_metric_and_whether_it_has_a_signature():
    words = {"tokenised_hypotheses": ["Ja !"], "tokenised_references": ["Ja !"]}
    scores = score(["Ja!"], ["Ja!"], **words, compound_split=True, compound_split_own=True)
    signed = {name: each.signature is not None for name, each in scores.items()}
    assert signed == {each.name: each.signature is not None for each in METRICS}


def test_perfect_and_exact():
    scores = score(["A dog runs fast .", " b ", "C", "d"], ["A dog runs fast .", "b", "c", "D."])
    assert scores["accuracy"] == (50.0, None)
    perfect = score(REFERENCES, REFERENCES)
    assert perfect["sacrebleu"].value == pytest.approx(100)
    assert perfect["chrf"].value == pytest.approx(100)
    assert perfect["accuracy"].value == 100.0


def test_a_bootstrap_needs_samples():
    with pytest.raises(ValueError, match="0 bootstrap samples"):
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
