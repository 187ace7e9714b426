"""Reads and writes fairseq's binarised files, without fairseq and in bounded memory."""

from __future__ import annotations

import struct
from pathlib import Path

from rskip.extras import extra
from rskip.files.rows import FileRows
from rskip.text.dictionary import Dictionary

with extra("translation", what="a corpus of text"):
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int64]

_HEADER = struct.Struct("<9sQBQ")  # magic number, version, code of the type, number of sentences
_TYPES = ("<u1", "<i1", "<i2", "<i4", "<i8", "<f8", "<f8", "<u2", "<u4", "<u8")  # types for codes 1 to 10


class MmapSentences:
    """Sentences as indices of a dictionary, in fairseq's "mmap" format. The files are read on access.

    :param prefix: path of the two files without `.idx` and `.bin`.
    :raises FileNotFoundError: a file is missing.
    :raises ValueError: a file has another format or is truncated, or the files are inconsistent.
    """

    def __init__(self, prefix: Path) -> None:
        self.index, self.data = (prefix.with_name(prefix.name + extension) for extension in (".idx", ".bin"))
        with self.index.open("rb") as file:
            header = file.read(_HEADER.size).ljust(_HEADER.size, b"\0")
        magic, version, code, count = _HEADER.unpack(header)
        if magic != b"MMIDIDX\0\0" or version != 1 or not 1 <= code <= len(_TYPES):
            raise ValueError(
                f"{self.index} is not an index in fairseq's mmap format, or truncated: binarise again with "
                "`fairseq-preprocess --dataset-impl mmap` (its default)"
            )
        end = _HEADER.size + 4 * count
        _require_size(self.index, end + 8 * count, f"{count:,} sentences take")
        self._sizes = FileRows(self.index, "<i4", (count,), offset=_HEADER.size)
        self._places = FileRows(self.index, "<i8", (count,), offset=end)  # in bytes
        self._width = np.dtype(_TYPES[code - 1]).itemsize
        last = slice(count - 1, count)
        tokens = int(self._places[last][0]) // self._width + int(self._sizes[last][0]) if count else 0
        _require_size(self.data, tokens * self._width, f"{self.index.name} describes")
        self._tokens = FileRows(self.data, _TYPES[code - 1], (tokens,))

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def sizes(self) -> NDArray[np.int32]:
        """The number of indices in each sentence, including its end symbol."""
        return self._sizes[:]

    def tokens(self) -> Integers:
        """All indices, in order."""
        return self._block(range(len(self)))[1]

    def sentence(self, row: int) -> Integers:
        """The indices of one sentence. Rows are counted from 0."""
        return self._block(range(row, row + 1))[1]

    def read(self, rows: range, *, vocabulary: int, dictionary: Path) -> tuple[Integers, Integers]:
        """The number of tokens in each of these sentences, without its end symbol, and the count of each index.

        :param vocabulary: size of the dictionary.
        :param dictionary: its file, for the error message.
        :raises ValueError: a file is damaged or was changed, or an index is outside the vocabulary.
        """
        sizes, tokens = self._block(rows)
        outside = np.flatnonzero((tokens < 0) | (tokens >= vocabulary))
        if len(outside):
            row = rows.start + int(np.searchsorted(np.cumsum(sizes), outside[0], side="right"))
            raise ValueError(
                f"{self.data}: sentence {row + 1:,} has token {tokens[outside[0]]}, but {dictionary} has only "
                f"{vocabulary:,} tokens: give the dictionary that the data was binarised with"
            )
        filled = sizes > 0
        lengths = sizes.copy()
        lengths[filled] -= tokens[np.cumsum(sizes)[filled] - 1] == Dictionary.eos_index
        return lengths, np.bincount(tokens, minlength=vocabulary)

    def _block(self, rows: range) -> tuple[Integers, Integers]:
        """The number of indices in each of these sentences, including its end symbol, and all indices."""
        sizes = self._sizes[rows.start : rows.stop].astype(np.int64)
        places = np.append(self._places[rows.start : rows.stop + 1], len(self._tokens) * self._width)[: len(sizes) + 1]
        first = int(places[0]) // self._width
        if (sizes < 0).any() or (places != (first + np.append(0, np.cumsum(sizes))) * self._width).any():
            raise ValueError(f"{self.index} is damaged: its sizes and offsets contradict each other: binarise again")
        return sizes, self._tokens[first : first + int(sizes.sum())].astype(np.int64)


class MmapWriter:
    """Writes sentences in fairseq's "mmap" format, for `MmapSentences`.

    :param prefix: path of the two files without `.idx` and `.bin`.
    :param vocabulary: size of the dictionary. As in fairseq, it determines the type of the indices.
    """

    def __init__(self, prefix: Path, vocabulary: int) -> None:
        self._prefix, self._code = prefix, 8 if vocabulary < 65_500 else 9
        self._sizes: list[NDArray[np.int32]] = []

    def __enter__(self) -> MmapWriter:
        self._data = self._prefix.with_name(self._prefix.name + ".bin").open("wb")
        return self

    def add(self, tokens: ArrayLike, sizes: ArrayLike) -> None:
        """Appends sentences.

        :param tokens: the indices of all their tokens, with end symbols.
        :param sizes: the number of indices in each sentence.
        """
        self._data.write(np.asarray(tokens, _TYPES[self._code - 1]).tobytes())
        self._sizes.append(np.asarray(sizes, "<i4"))

    def __exit__(self, *error: object) -> None:
        self._data.close()
        sizes = np.concatenate([np.empty(0, "<i4"), *self._sizes])
        width = np.dtype(_TYPES[self._code - 1]).itemsize
        places = (np.cumsum(sizes, dtype="<i8") - sizes) * width
        with self._prefix.with_name(self._prefix.name + ".idx").open("wb") as file:
            file.write(_HEADER.pack(b"MMIDIDX\0\0", 1, self._code, len(sizes)))
            file.write(sizes.tobytes())
            file.write(places.tobytes())


def _require_size(path: Path, expected: int, described: str) -> None:
    if (size := path.stat().st_size) != expected:
        what = "is truncated" if size < expected else "is too long"
        raise ValueError(f"{path} {what}: it has {size:,} bytes, {described} {expected:,}: binarise again")
