"""The sentences of a file pair of fairseq's "mmap" format, read without fairseq and in bounded memory."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_HEADER = struct.Struct("<9sQBQ")  # magic, version, code of the type, sentences
_MAGIC, _VERSION = b"MMIDIDX\0\0", 1
_TYPES = {
    1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f8", 8: "<u2", 9: "<u4", 10: "<u8",
}  # fmt: skip
_OTHER_FORMATS = {b"TNTIDX\0\0": "lazy or cached", b"HUFFIDX\0": "huffman"}
_SIZE, _POINTER = np.dtype("<i4"), np.dtype("<i8")
_TOKENS_AT_ONCE = 1 << 22


class MmapSentences:
    """Sentences as indices of a dictionary.

    Nothing stays mapped between calls, so that memory stays flat whatever the size of the files.

    :param prefix: path of the pair without `.idx` and `.bin`.
    :raises FileNotFoundError: one of the two, or both, are missing.
    :raises ValueError: another format, or files that are cut off or don't belong together.
    """

    def __init__(self, prefix: Path) -> None:
        self.index, self.data = (prefix.with_name(prefix.name + extension) for extension in (".idx", ".bin"))
        if not self.index.exists() and not self.data.exists():
            raise FileNotFoundError(f"{self.index} and {self.data.name} are missing: binarise both languages")
        for path, other in ((self.index, self.data), (self.data, self.index)):
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing: {other.name} is there, and each needs the other")
        self._type, self._sentences = self._read_header()
        expected = self.token_offset(self._sentences) * self._type.itemsize
        if (size := self.data.stat().st_size) != expected:
            what = "is cut off" if size < expected else "does not belong to its .idx"
            raise ValueError(
                f"{self.data} {what}: it has {size:,} bytes, {self.index.name} describes {expected:,}: binarise again"
            )

    def _read_header(self) -> tuple[np.dtype[Any], int]:
        with self.index.open("rb") as file:
            header = file.read(_HEADER.size)
        if other := _OTHER_FORMATS.get(header[:8]):
            raise ValueError(
                f"{self.index} is of fairseq's {other} format: expected mmap, which "
                "`fairseq-preprocess --dataset-impl mmap` writes (its default)"
            )
        if not header.startswith(_MAGIC):
            raise ValueError(f"{self.index} is not an index of fairseq-preprocess: binarise again")
        if len(header) < _HEADER.size:
            raise ValueError(f"{self.index} is cut off: binarise again")
        _, version, code, sentences = _HEADER.unpack(header)
        if version != _VERSION or code not in _TYPES:
            raise ValueError(
                f"{self.index} has version {version} and type {code} of fairseq's mmap format: "
                f"expected version {_VERSION} and a type of 1 to {max(_TYPES)}"
            )
        expected = _HEADER.size + sentences * (_SIZE.itemsize + _POINTER.itemsize)
        if (size := self.index.stat().st_size) != expected:
            what = "is cut off" if size < expected else "has too much in it"
            raise ValueError(
                f"{self.index} {what}: it has {size:,} bytes, and {sentences:,} sentences take {expected:,}: "
                "binarise again"
            )
        return np.dtype(_TYPES[code]), sentences

    def __len__(self) -> int:
        return self._sentences

    def sizes(self, start: int, stop: int) -> Integers:
        """How many indices each of these sentences has, its end mark included.

        :raises ValueError: the index file's sizes and places contradict each other.
        """
        sizes = self._map(self.index, _SIZE, _HEADER.size, start, stop).astype(np.int64)
        places = self._map(self.index, _POINTER, self._places_at, start, stop)
        ends = (self.token_offset(start) + np.cumsum(sizes)) * self._type.itemsize
        if (sizes < 0).any() or (places != ends - sizes * self._type.itemsize).any():
            raise ValueError(f"{self.index} is damaged: its sizes and places contradict each other: binarise again")
        return sizes

    def token_offset(self, sentence: int) -> int:
        """How many indices lie before a sentence; of the number of sentences: how many there are."""
        if sentence == 0:
            return 0
        last = sentence - 1
        place = int(self._map(self.index, _POINTER, self._places_at, last, sentence)[0])
        if place < 0 or place % self._type.itemsize:
            raise ValueError(f"{self.index} is damaged: sentence {sentence:,} lies at byte {place}: binarise again")
        return place // self._type.itemsize + int(self._map(self.index, _SIZE, _HEADER.size, last, sentence)[0])

    def tokens(self, start: int, stop: int) -> Integers:
        """Indices at these places, counted over all sentences, as they follow each other in the file."""
        return self._map(self.data, self._type, 0, start, stop).astype(np.int64)

    def sentence(self, number: int) -> Integers:
        """Indices of one sentence, counted from 0."""
        return self.tokens(self.token_offset(number), self.token_offset(number + 1))

    def lengths(self, start: int, stop: int, *, end_mark: int) -> Integers:
        """Tokens of each of these sentences, not counting an `end_mark` at its end."""
        sizes = self.sizes(start, stop)
        first = self.token_offset(start)
        ends = np.cumsum(sizes)
        data = self._map(self.data, self._type, 0, first, first + int(sizes.sum()))
        last = np.zeros(len(sizes), dtype=bool)
        filled = sizes > 0
        last[filled] = data[ends[filled] - 1] == end_mark
        return sizes - last

    def counts(self, start: int, stop: int, *, vocabulary: int, dictionary: Path) -> Integers:
        """How often each index of a vocabulary occurs in these sentences.

        :param vocabulary: how many tokens it has.
        :param dictionary: its file, for the message.
        :raises ValueError: an index that the vocabulary doesn't have; the message names the sentence.
        """
        counts = np.zeros(vocabulary, dtype=np.int64)
        begin, end = self.token_offset(start), self.token_offset(stop)
        for first in range(begin, end, _TOKENS_AT_ONCE):
            tokens = self.tokens(first, min(first + _TOKENS_AT_ONCE, end))
            if tokens.min() < 0 or tokens.max() >= vocabulary:
                outside = int(np.flatnonzero((tokens < 0) | (tokens >= vocabulary))[0])
                ends = begin + np.cumsum(self.sizes(start, stop))
                sentence = start + int(np.searchsorted(ends, first + outside, side="right"))
                raise ValueError(
                    f"{self.data}: sentence {sentence + 1:,} has token {tokens[outside]}, but {dictionary} has only "
                    f"{vocabulary:,} tokens: is it the one that the data was binarised with?"
                )
            counts += np.bincount(tokens, minlength=vocabulary)
        return counts

    @property
    def _places_at(self) -> int:
        return _HEADER.size + self._sentences * _SIZE.itemsize

    @staticmethod
    def _map(path: Path, dtype: np.dtype[Any], offset: int, start: int, stop: int) -> NDArray[Any]:
        """Items `start` to `stop` of an array that begins at byte `offset`; mapped, not read."""
        if stop <= start:
            return np.empty(0, dtype=dtype)
        place = offset + start * dtype.itemsize
        return np.memmap(path, dtype=dtype, mode="r", offset=place, shape=(stop - start,))
