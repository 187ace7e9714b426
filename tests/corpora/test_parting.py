"""The line from which two texts are misaligned, found by lengths, numbers and punctuation."""

from __future__ import annotations

import random

from rskip.corpora.parting import first_parting


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [
        "word " * draw.randrange(1, 30) + (f"{draw.randrange(99)} " if draw.random() < 0.2 else "")
        for _ in range(count)
    ]


def translation(sentence: str, draw: random.Random) -> str:
    return sentence.replace("word", "ein Wort" if draw.random() < 0.5 else "Worte") + draw.choice(["", "und"])


def test_lines_that_are_missing_or_too_many_are_found_within_a_few_lines() -> None:
    draw = random.Random(1)
    for seed in range(20):
        source = sentences(600, seed)
        target = [translation(sentence, draw) for sentence in source]
        place, lost = draw.randrange(0, 550), draw.choice([1, 1, 2, 5])
        changed = target[:place] + (target[place + lost :] if seed % 2 else ["neu 7"] * lost + target[place:])
        for found in (first_parting(source, changed), first_parting(changed, source)):
            assert found is not None and abs(found - place - 1) <= 8
        assert first_parting(source, target[:-lost]) == first_parting(target[:-lost], source) == 601 - lost


def test_nothing_is_said_of_texts_that_do_not_translate_each_other() -> None:
    for seed in range(20):
        other = sentences(590, 100 + seed)
        assert first_parting(sentences(600, seed), other) is None
        assert first_parting(other[:15], other[:16]) is None  # too few lines
