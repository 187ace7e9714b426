import math
import random
from collections import Counter

import numpy as np
import pytest

from rskip.captioning.cider import CiderD

WORDS = [f"w{number}" for number in range(30)]


def caption(rng, words=WORDS):
    return [rng.choice(words) for _ in range(rng.randint(1, 12))]


def by_the_formula(references, name, candidate):
    """CIDEr-D x 10, written out: clipped tf-idf vectors, cosines, a Gaussian of the lengths, means."""

    def grams(words, size):
        return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))

    def vector(words, size):
        def images_with(gram):
            return sum(any(gram in grams(each, size) for each in captions) for captions in references.values())

        log = math.log(len(references))
        return {gram: times * (log - math.log(max(images_with(gram), 1))) for gram, times in grams(words, size).items()}

    total = 0.0
    for reference in references[name]:
        away = max(len(candidate) - 1, 0) - max(len(reference) - 1, 0)
        for size in (1, 2, 3, 4):
            ours, theirs = vector(candidate, size), vector(reference, size)
            scale = math.sqrt(sum(v * v for v in ours.values()) * sum(v * v for v in theirs.values()))
            product = sum(min(value, theirs.get(gram, 0)) * theirs.get(gram, 0) for gram, value in ours.items())
            total += (product / scale if scale else 0.0) * math.exp(-(away**2) / 72)
    return 10 * total / 4 / len(references[name])


def test_it_is_the_formula():
    rng = random.Random(1)
    references = {f"{number}.jpg": [caption(rng) for _ in range(rng.randint(1, 5))] for number in range(20)}
    names = [rng.choice(list(references)) for _ in range(40)]
    candidates = [caption(rng, [*WORDS, "new", "newer"]) for _ in names]
    candidates[:4] = [], ["new"], ["new", "new", "newer"], references[names[3]][0]
    found = CiderD(references).score(names, candidates)
    expected = [by_the_formula(references, *pair) for pair in zip(names, candidates, strict=True)]
    assert np.allclose(found, expected, rtol=0, atol=1e-12)
    assert found[0] == found[1] == 0 < found[3]


def test_one_image_and_references_without_words():
    assert CiderD({"a": [["x"]]}).score(["a", "a"], [["x"], []]).tolist() == [0, 0]  # every word is in all images
    assert CiderD({"a": [[]], "b": [[]]}).score(["a"], [["x"]]).tolist() == [0]
    assert CiderD({"a": [["x"]]}).score([], []).shape == (0,)


def test_it_is_the_scorer_of_coco_caption():
    cider = pytest.importorskip("pycocoevalcap.cider.cider", reason="needs the extra captioning")
    rng = random.Random(3)
    references = {str(number): [caption(rng) for _ in range(5)] for number in range(100)}
    candidates = {name: caption(rng) for name in references}
    mean, each = cider.Cider().compute_score(
        {name: [" ".join(words) for words in captions] for name, captions in references.items()},
        {name: [" ".join(words)] for name, words in candidates.items()},
    )
    found = CiderD(references).score(list(candidates), list(candidates.values()))
    assert np.allclose(found, each, rtol=0, atol=1e-12) and found.mean() == pytest.approx(mean, abs=1e-12)
