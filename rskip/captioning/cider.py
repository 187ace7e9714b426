"""CIDEr-D (Vedantam et al., 2015, section 5), fast enough to be the reward in training.

The weighted n-grams of the references are computed once and kept in sorted arrays. A batch of candidates is then scored
with a few array operations.

    R references of an image, W words, G n-grams, and (entry) an n-gram of one reference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rskip.extras import extra

with extra("captioning"):
    import numpy as np

LONGEST = 4  # words of an n-gram
SIGMA = 6.0  # of the penalty for different lengths
SCALE = 10.0

# N-grams are 64-bit hashes. A collision among the five million of COCO's training captions has probability 1e-6.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class CiderD:
    """Computes CIDEr-D of candidates against the references of their images.

    The weight of an n-gram depends on the number of images that have it in a reference, so the score of an image
    depends on all images. The scores equal those of coco-caption's scorer, which calls them CIDEr and measures the
    length of a caption in pairs of words.

    :param references: maps the name of an image to the tokens of each of its references.
    """

    def __init__(self, references: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._numbers = {name: number for number, name in enumerate(references)}
        self._words: dict[str, int] = {}
        captions = [caption for captions in references.values() for caption in captions]
        count = np.array([len(captions) for captions in references.values()])
        self._count = count  # references of each image
        self._first = np.cumsum(count) - count  # number of each image's first reference
        image_of = np.repeat(np.arange(len(count)), count)
        words = [[self._words.setdefault(word, len(self._words)) for word in caption] for caption in captions]
        self._lengths = _pairs(words)

        reference, order, keys, times = _ngrams(words)
        self._keys, ngram = np.unique(keys, return_inverse=True)  # (G,), (entry,)
        code = image_of[reference] * len(self._keys) + ngram  # of image and n-gram
        by_code = np.argsort(code, kind="stable")
        code, reference, order, ngram, times = (each[by_code] for each in (code, reference, order, ngram, times))
        self._unseen = np.log(len(count))  # weight of n-grams that are in no reference
        images_with = np.bincount(np.unique(code) % max(len(self._keys), 1), minlength=len(self._keys))
        self._idf = self._unseen - np.log(images_with)  # (G,)
        self._codes, self._reference = code, reference
        self._weights = times * self._idf[ngram]  # (entry,)
        self._norms = _norms(reference, order, self._weights, len(captions))  # (references, LONGEST)

    def score(self, names: Sequence[str], candidates: Sequence[Sequence[str]]) -> np.ndarray:
        """CIDEr-D of each candidate, times 10. Shape: (len(names),)

        :param names: the image of each candidate; an image may have several.
        :param candidates: tokens of the candidates.
        :raises KeyError: an image has no references.
        """
        images = np.array([self._numbers[name] for name, _ in zip(names, candidates, strict=True)], dtype=np.int64)
        unknown: dict[str, int] = {}
        words = [
            [
                number
                if (number := self._words.get(word)) is not None
                else unknown.setdefault(word, len(self._words) + len(unknown))
                for word in caption
            ]
            for caption in candidates
        ]
        candidate, order, keys, times = _ngrams(words)
        ngram = np.searchsorted(self._keys, keys)
        ngram[ngram == len(self._keys)] = 0
        known = self._keys[ngram] == keys if len(self._keys) else np.zeros(len(keys), bool)
        weights = times * np.where(known, self._idf[ngram] if len(self._keys) else 0.0, self._unseen)
        norms = _norms(candidate, order, weights, len(names))  # (candidates, LONGEST)

        # matches each n-gram of a candidate with equal ones in the references of its image
        code = images[candidate[known]] * len(self._keys) + ngram[known]
        begin, end = np.searchsorted(self._codes, code), np.searchsorted(self._codes, code, side="right")
        met = end - begin
        entry = np.repeat(end - np.cumsum(met), met) + np.arange(met.sum())
        weight = np.repeat(weights[known], met)
        here = np.repeat(candidate[known], met)
        products = np.minimum(weight, self._weights[entry]) * self._weights[entry]

        # a pair is a candidate and one of its references
        references = self._count[images]
        first_pair = np.cumsum(references) - references
        pair = first_pair[here] + self._reference[entry] - self._first[images[here]]
        pairs = int(references.sum())
        cell = pair * LONGEST + np.repeat(order[known], met)
        similarity = np.bincount(cell, products, minlength=pairs * LONGEST).reshape(pairs, LONGEST)
        of_pair = np.repeat(np.arange(len(names)), references)
        reference = np.arange(pairs) - first_pair[of_pair] + self._first[images[of_pair]]
        scale = norms[of_pair] * self._norms[reference]
        similarity = np.divide(similarity, scale, out=np.zeros_like(scale), where=scale > 0)
        difference = _pairs(words)[of_pair] - self._lengths[reference]
        values = similarity.mean(axis=1) * np.exp(-(difference**2) / (2 * SIGMA**2))
        return SCALE * np.bincount(of_pair, values, minlength=len(names)) / references


def _ngrams(captions: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The distinct n-grams of every caption: (entry,) number of the caption, n - 1, hash, count."""
    lengths = np.array([len(caption) for caption in captions], dtype=np.int64)
    words = np.fromiter((word for caption in captions for word in caption), dtype=np.uint64, count=int(lengths.sum()))
    caption = np.repeat(np.arange(len(captions)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))  # words from here to the end of the caption
    found = []
    for size in range(1, LONGEST + 1):
        starts = np.flatnonzero(left >= size)
        keys = np.full(len(starts), _MULTIPLIER >> np.uint64(size), dtype=np.uint64)
        for offset in range(size):
            keys = (keys ^ words[starts + offset]) * _MULTIPLIER
            keys ^= keys >> np.uint64(29)
        found.append((caption[starts], np.full(len(starts), size - 1), keys))
    captions_, orders, keys = (np.concatenate(each) for each in zip(*found, strict=True))
    by = np.lexsort((keys, captions_))
    captions_, orders, keys = captions_[by], orders[by], keys[by]
    new = np.ones(len(keys), bool)
    new[1:] = (captions_[1:] != captions_[:-1]) | (keys[1:] != keys[:-1])
    starts = np.flatnonzero(new)
    return captions_[starts], orders[starts], keys[starts], np.diff(starts, append=len(keys)).astype(float)


def _norms(caption: np.ndarray, order: np.ndarray, weights: np.ndarray, captions: int) -> np.ndarray:
    """The Euclidean norm of the n-gram weights of each caption. Shape: (captions, LONGEST)"""
    squares = np.bincount(caption * LONGEST + order, weights**2, minlength=captions * LONGEST)
    return np.sqrt(squares).reshape(captions, LONGEST)


def _pairs(captions: Sequence[Sequence[int]]) -> np.ndarray:
    return np.array([max(len(caption) - 1, 0) for caption in captions])
