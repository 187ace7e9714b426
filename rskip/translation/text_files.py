"""How a model's text was made: a text pipeline, or the subword units alone."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from rskip.text import TextConfig, TextPipeline, TokenText
from rskip.text.pipeline import CONFIG_FILE
from rskip.text.subwords import BytePairEncoding, SentencePiece, Subwords
from rskip.translation.model_files import Languages

TOKENS = "tokens"
_FASTBPE = re.compile(rb"\S+ \S+ \d+\n")
_COUNT = re.compile(rb" \d+$", re.MULTILINE)
Text = TextPipeline | TokenText

# Where fairseq's models keep their units, in a folder without a pipeline.
_UNITS = (
    BytePairEncoding.file_name,
    "bpe.codes",
    "bpecodes",
    "code",
    SentencePiece.file_name,
    "sentencepiece.bpe.model",
)


def find_text(
    text: str | os.PathLike[str] | TextPipeline | None, folders: Sequence[Path]
) -> TextPipeline | Subwords | None:
    """The text pipeline, or where there are only subword units those, or None for text that is tokens already.

    :param text: a pipeline; a folder that holds one, or units; a file of units (byte-pair codes, a SentencePiece
        model); "tokens"; None: what `folders`, or their folders called text, hold.
    :raises FileNotFoundError: nothing there.
    :raises ValueError: a damaged file.
    """
    if isinstance(text, TextPipeline):
        return text
    if text == TOKENS:
        return None
    if text is None:
        places = [place for folder in folders for place in (folder / "text", folder)]
    else:
        places = [Path(text)]
        if places[0].is_file():
            return load_units(places[0])
        if not places[0].is_dir():
            raise FileNotFoundError(f"no text pipeline {text}: expected a folder, or a file of subword units")
    for place in places:
        if (place / CONFIG_FILE).is_file():
            return TextPipeline.load(place)
        for name in _UNITS:
            if (place / name).is_file():
                return load_units(place / name)
    raise FileNotFoundError(
        f"no text pipeline in {' or '.join(map(str, places[-1:] if text else folders))}: give text= (--text), a folder "
        f"with {CONFIG_FILE} (`rskip prepare` writes one), a file of byte-pair codes or a SentencePiece model, or "
        f'"{TOKENS}" for text that is tokenised and segmented already'
    )


def load_units(path: Path) -> Subwords:
    """The subword units of a file: byte-pair codes, known by their first line, or else a SentencePiece model.

    fastBPE's codes are subword-nmt's with each merge's count behind it and without the line of the version.

    :raises ValueError: neither.
    """
    data = path.read_bytes()
    if _FASTBPE.match(data):
        data = b"#version: 0.2\n" + _COUNT.sub(b"", data)
    if data.startswith(b"#version"):
        try:
            return BytePairEncoding(data.decode("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    with contextlib.suppress(RuntimeError):
        if data:
            return SentencePiece(data)
    raise ValueError(
        f"{path} holds no subword units: neither byte-pair codes of subword-nmt (their first line is '#version: 0.2') "
        "or fastBPE, nor a SentencePiece model"
    )


def build_text(found: TextPipeline | Subwords | None, languages: Languages) -> Text:
    """The text of a model between these languages, out of what `find_text` found.

    A pipeline for the other direction is turned round. Byte-pair codes alone get `TextConfig`'s defaults (Moses, as
    fairseq calls it); a SentencePiece model takes the text as it is.

    :raises ValueError: a pipeline for other languages.
    """
    if found is None:
        return TokenText(*languages)
    if not isinstance(found, TextPipeline):
        return TextPipeline(_config(found, languages), found)
    if languages == (found.source_language, found.target_language):
        return found
    if languages == (found.target_language, found.source_language):
        return found.reversed()
    raise ValueError(
        f"the text pipeline is for {found.source_language} and {found.target_language}, but the model translates "
        f"{languages.source} to {languages.target}: give its own pipeline (text=, --text), or say what it translates "
        "(source_language=, target_language=; --source-lang, --target-lang)"
    )


def _config(units: Subwords, languages: Languages) -> TextConfig:
    if isinstance(units, SentencePiece):
        return TextConfig(
            source_language=languages.source,
            target_language=languages.target,
            normalise_punctuation=False,
            tokeniser="none",
            subwords="sentencepiece",
        )
    return TextConfig(source_language=languages.source, target_language=languages.target)
