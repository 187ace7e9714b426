"""A data folder of a language model: tokens of train and valid in fairseq's "mmap" format, and the text's tokens."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.corpora.inspection.binarised import MmapSentences
from rskip.corpora.record import CorpusRecord, damage, describe_made, made_record, read_corpus_record
from rskip.extras import extra
from rskip.language_modeling.tokens import DICTIONARY, TextTokens
from rskip.settings.kinds import Whole

if TYPE_CHECKING:
    from torch import Tensor  # preparing a text needs no PyTorch, whose import takes seconds

SPLITS = ("train", "valid")
_MAGIC, _VERSION = b"MMIDIDX\0\0", 1
_UINT16, _INT32 = 8, 4  # fairseq's codes of types


class TextRecord(CorpusRecord):
    """The content of corpus.json for a text."""

    format: int
    tokens: dict[str, Whole]
    characters: dict[str, Whole]
    dictionary_size: Whole


@dataclass(frozen=True, kw_only=True)
class TextData:
    """The tokens of a text.

    :param name: the corpus's name.
    :param splits: the tokens of train and valid, as one-dimensional int64 tensors.
    :param characters: number of characters of each split.
    :param described: description for a run's record.
    """

    name: str
    path: Path
    tokens: TextTokens
    splits: dict[str, Tensor]
    characters: dict[str, int]
    described: dict[str, Any]


def load_data(folder: str | Path) -> TextData:
    """Reads a folder that `rskip prepare` made of a text.

    :raises FileNotFoundError: no such folder, or it holds something else.
    :raises ValueError: a file is missing or truncated.
    """
    folder = Path(folder)
    if "captions" in (read_corpus_record(folder) or {}) or not (folder / DICTIONARY).is_file():
        how = "expected a folder from `rskip prepare shakespeare-char` or `rskip prepare --text FILE`"
        raise FileNotFoundError(f"{folder} holds no text: {how}")
    record = made_record(folder, TextRecord)
    if (wrong := damage(folder, record)) is not None:
        raise ValueError(f"{folder} {wrong}: prepare it again with `rskip prepare`")
    made: Any = record
    kept = ("corpus", "format", "options", "tokens", "characters", "dictionary_size")
    return TextData(
        name=made.get("corpus") or folder.name,
        path=folder,
        tokens=TextTokens.load(folder),
        splits={split: _read(folder / split) for split in SPLITS},
        characters=dict(record["characters"]),
        described=describe_made(made, kept),
    )


def write_tokens(prefix: Path, lines: Sequence[Sequence[int]], *, vocabulary: int) -> None:
    """Writes PREFIX.bin and PREFIX.idx, as fairseq-preprocess does: one sentence per line."""
    small = vocabulary < 65_500  # as fairseq chooses
    kind, code, width = ("H", _UINT16, 2) if small else ("i", _INT32, 4)
    tokens = array(kind, chain.from_iterable(lines))
    sizes = [len(line) for line in lines]
    places, place = [], 0
    for size in sizes:
        places.append(place)
        place += size * width
    prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
    prefix.with_suffix(".idx").write_bytes(
        _MAGIC
        + struct.pack("<QBQ", _VERSION, code, len(sizes))
        + struct.pack(f"<{len(sizes)}i", *sizes)
        + struct.pack(f"<{len(places)}q", *places)
    )


def _read(prefix: Path) -> Tensor:
    import torch

    with extra("translation", what="a corpus of text"):
        import numpy as np

    MmapSentences(prefix)  # checks both files
    with prefix.with_suffix(".idx").open("rb") as file:
        code = struct.unpack("<QB", file.read(18)[9:])[1]
    content = np.fromfile(prefix.with_suffix(".bin"), dtype="<u2" if code == _UINT16 else "<i4")
    return torch.from_numpy(content.astype(np.int64))
