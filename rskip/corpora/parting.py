"""Finds the line from which two parallel texts are misaligned, if it can be determined."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from rskip.extras import extra

with extra("translation", what="a corpus of text"):
    import numpy as np
    from numpy.typing import NDArray

LARGEST = 300_000
"""Number of lines of each text that are compared."""

_WINDOW, _SURE = 20, 6.0
_LARGEST_SHIFT = 10
_CHECKED, _ERRORS = 200, 2.0  # number of lines before and after a place, and standard errors of their agreement
_NUMBER = re.compile(r"\d+")
_STOPS = {".": 1, "。": 1, "।": 1, "?": 2, "？": 2, "؟": 2, "!": 3, "！": 3, ":": 4, "：": 4, ";": 5}


def first_parting(source: Iterable[str], target: Iterable[str]) -> int | None:
    """The number of the first line that the line of the same number no longer translates; None: can't be determined.

    Pairs of lines are likely translations if their lengths, numbers and last punctuation marks agree. The texts are
    misaligned from the first line after which source lines agree clearly better with target lines a few places later
    or earlier.

    :returns: a number from 1, mostly right within a few lines.
    """
    first, second = _Lines(islice(source, LARGEST)), _Lines(islice(target, LARGEST))
    shorter, difference = min(len(first), len(second)), len(second) - len(first)
    if shorter < _WINDOW or difference == 0:
        return None
    scale = float(np.median(second.lengths[:shorter] - first.lengths[:shorter]))
    sign = 1 if difference > 0 else -1
    shifts = {*range(sign, sign * (min(_LARGEST_SHIFT, abs(difference)) + 1), sign), difference}
    begins = [(begin, shift) for shift in shifts if (begin := _begin(first, second, shift, scale)) is not None]
    for place, shift in sorted(begins) or [(shorter, 0)]:
        before = slice(max(0, place - _CHECKED), place)
        after = slice(place, place + _CHECKED)
        together = place < _WINDOW or _go_together(first, second, 0, scale, before)
        if together and (not begins or _go_together(first, second, shift, scale, after)):
            return place + 1
    return None


class _Lines:
    """The compared properties of a text's lines.

    lengths: logarithms of the numbers of characters. stops: kinds of last punctuation marks. numbers: hashes of the
    numbers in a line, 0 without any.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        lengths, stops, numbers = [], [], []
        for line in lines:
            text = line.strip()
            lengths.append(len(text) + 1)
            stops.append(_STOPS.get(text[-1:], 0))
            numbers.append(hash(tuple(sorted(_NUMBER.findall(text)))) if _NUMBER.search(text) else 0)
        self.lengths = np.log(np.array(lengths, dtype=np.float64))
        self.stops, self.numbers = np.array(stops, dtype=np.int8), np.array(numbers, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.lengths)


def _agreement(source: _Lines, target: _Lines, shift: int, scale: float) -> NDArray[np.float64]:
    """The agreement of each source line with the target line `shift` places later; -inf without such a line."""
    begin, end = max(0, -shift), min(len(source), len(target) - shift)
    result = np.full(len(source), -np.inf)
    if begin >= end:
        return result
    ours, theirs = slice(begin, end), slice(begin + shift, end + shift)
    lengths = np.minimum(np.abs(target.lengths[theirs] - source.lengths[ours] - scale) / 0.4, 3.0)
    numbered = (source.numbers[ours] != 0) | (target.numbers[theirs] != 0)
    same_numbers = np.where(source.numbers[ours] == target.numbers[theirs], 2.0, -1.0)
    stops = np.where(source.stops[ours] == target.stops[theirs], 0.0, -1.0)
    result[ours] = -(lengths**2) / 2 + np.where(numbered, same_numbers, 0.0) + stops
    return result


def _begin(source: _Lines, target: _Lines, shift: int, scale: float) -> int | None:
    """The first line, from 0, from which the shift agrees clearly better than no shift."""
    together, shifted = _agreement(source, target, 0, scale), _agreement(source, target, shift, scale)
    both = np.flatnonzero(np.isfinite(together) & np.isfinite(shifted))
    if len(both) < _WINDOW:
        return None
    sums = np.concatenate([[0.0], np.cumsum(shifted[both] - together[both])])
    clear = np.flatnonzero(sums[_WINDOW:] - sums[:-_WINDOW] > _SURE)
    if not len(clear):
        return None
    last = int(clear[0]) + _WINDOW
    first = max(0, last - 3 * _WINDOW)
    return int(both[first + int(np.argmin(sums[first:last]))])


def _go_together(source: _Lines, target: _Lines, shift: int, scale: float, lines: slice) -> bool:
    """Whether these source lines agree with those target lines far better than with others nearby."""
    right = _agreement(source, target, shift, scale)[lines]
    for wrong in (17, 29, 41, -17, -29, -41):
        other = _agreement(source, target, shift + wrong, scale)[lines]
        both = np.isfinite(right) & np.isfinite(other)
        if both.sum() >= _WINDOW / 2:
            gain = right[both] - other[both]
            if gain.mean() < _ERRORS * gain.std() / np.sqrt(len(gain)):
                return False
    return True
