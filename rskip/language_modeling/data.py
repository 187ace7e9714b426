"""A data folder of a language model: tokens of train and valid in fairseq's "mmap" format, and the text's tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.corpora.binarised import MmapSentences
from rskip.corpora.record import CorpusRecord, damage, describe_made, made_record, read_corpus_record
from rskip.language_modeling.tokens import DICTIONARY, TextTokens
from rskip.settings.kinds import Whole

if TYPE_CHECKING:
    from torch import Tensor  # preparing a text needs no PyTorch, whose import takes seconds

SPLITS = ("train", "valid")


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
    :param described: description for a run's record.
    """

    name: str
    path: Path
    tokens: TextTokens
    splits: dict[str, Tensor]
    described: dict[str, Any]


def load_data(folder: str | Path) -> TextData:
    """Reads a folder that `rskip prepare` made of a text.

    :raises FileNotFoundError: no such folder, or it holds something else.
    :raises ValueError: a file is missing or truncated.
    """
    import torch

    folder = Path(folder)
    if "captions" in (read_corpus_record(folder) or {}) or not (folder / DICTIONARY).is_file():
        how = "expected a folder from `rskip prepare shakespeare-char` or `rskip prepare --text FILE`"
        raise FileNotFoundError(f"{folder} holds no text: {how}")
    record = made_record(folder, TextRecord)
    if (wrong := damage(folder, record)) is not None:
        raise ValueError(f"{folder} {wrong}: prepare it again with `rskip prepare`")
    kept = ("corpus", "format", "options", "tokens", "characters", "dictionary_size")
    return TextData(
        name=record.get("corpus") or folder.name,
        path=folder,
        tokens=TextTokens.load(folder),
        splits={split: torch.from_numpy(MmapSentences(folder / split).tokens()) for split in SPLITS},
        described=describe_made(record, kept),
    )
