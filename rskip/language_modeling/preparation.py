"""Prepares a text as a data folder for language models: a corpus of texts, or your own file."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from rskip.corpora.binarised import MmapWriter
from rskip.corpora.corpus import TextCorpus
from rskip.corpora.fetch import fetch
from rskip.corpora.record import FORMAT, made_record, needs_build, write_record
from rskip.files.cache import expanded_path
from rskip.files.checksum import sha256_file
from rskip.files.lock import one_at_a_time
from rskip.files.names import line_name
from rskip.files.whole import real_path, whole_folder
from rskip.language_modeling.data import SPLITS, TextRecord
from rskip.language_modeling.tokens import Kind, TextTokens
from rskip.settings.check import check
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Size

_SUBWORDS = 4000


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options that, together with the text, determine the prepared tokens.

    :raises SettingError: a value is wrong.
    """

    tokens: Annotated[Kind, Meta(description="tokens of a text: characters, or subwords")] = "characters"
    text_size: Annotated[
        Size | None,
        Meta(
            description="maximum number of units, with --tokens subwords",
            extra={"metavar": "N", "default": _SUBWORDS},
        ),
    ] = None
    valid_share: Annotated[
        float, Meta(gt=0, lt=1, description="share of a text, at its end, that is for validation")
    ] = 0.1

    def __post_init__(self) -> None:
        check(self)
        if self.tokens != "subwords" and self.text_size is not None:
            raise SettingError.of_value("text_size", self.text_size, "none with characters", advice="use subwords")

    @property
    def size(self) -> int:
        """The number of subword units."""
        return _SUBWORDS if self.text_size is None else self.text_size


def prepare_text(
    text: TextCorpus | Path,
    output: str | Path,
    *,
    options: TextOptions | None = None,
    mirror: str | None = None,
    offline: bool = False,
    force: bool = False,
) -> bool:
    """Writes `output` atomically: the dictionary, the tokens of train and valid, and corpus.json.

    The beginning of the text is for training, its end for validation. Subwords are learnt from the training part.

    :param text: a corpus, or your own file in UTF-8.
    :param mirror: a folder or base URL with the corpus's file.
    :param offline: download nothing.
    :param force: replace a folder that was prepared with other options.
    :returns: False if `output` was up to date already.
    :raises ValueError: the text is empty, too short or not UTF-8, or `output` holds other files.
    :raises OSError: the text is missing, or the server can't be reached.
    """
    output, options = real_path(output), options or TextOptions()
    plain = {name: value for name, value in asdict(options).items() if name != "text_size"}
    if options.tokens == "subwords":
        plain["text_size"] = options.size
    planned: dict[str, Any] = {"format": FORMAT, "corpus": "", "options": plain, "inputs": {}}
    more: dict[str, str] = {}
    if isinstance(text, TextCorpus):
        planned["corpus"], file = text.name, text.file
        planned["inputs"] = {file.name: {"url": file.url, "size": file.size, "sha256": file.sha256}}
        more = {"homepage": text.homepage, "licence": text.licence, "citation": text.citation}
    else:
        path = expanded_path(text, "text")
        if not path.is_file():
            exists = "a folder" if path.is_dir() else "a pipe"
            problem = f"is {exists}" if path.exists() else "no such file"
            raise FileNotFoundError(f"{line_name(path)}: {problem}: expected a text file in UTF-8")
        planned["corpus"] = path.name.partition(".")[0] or path.name
        planned["inputs"] = {path.name: {"url": None, "size": path.stat().st_size, "sha256": sha256_file(path)}}
    if not needs_build(output, planned, force=force):
        return False
    if isinstance(text, TextCorpus):
        path = fetch([text.file], folder=text.folder, mirror=mirror, offline=offline)[text.file].path
    parts = read_parts(path, valid_share=options.valid_share)
    try:
        # all characters are known, since an unknown one would have no loss
        known = "".join(parts.values()) if options.tokens == "characters" else parts["train"]
        tokens = TextTokens.learn(options.tokens, known, size=options.size)
    except ValueError as error:
        raise SettingError("text_size", f"is {options.size}: {error}") from None
    encoded = {split: _lines(tokens, parts[split]) for split in SPLITS}
    counted = {split: sum(map(len, lines)) for split, lines in encoded.items()}
    if min(counted.values()) < 2:  # one token for each half of the validation
        has = " and ".join(f"{split} has {count:,} tokens" for split, count in counted.items())
        raise ValueError(
            f"{line_name(path)}: {has}: expected 2 or more; prepare a longer text, or another --valid-share"
        )
    size, characters = len(tokens.dictionary), {split: len(parts[split]) for split in SPLITS}
    with one_at_a_time(output):
        if not needs_build(output, planned, force=force):
            return False  # another process has just written it
        with whole_folder(output) as folder:
            tokens.save(folder)
            for split, lines in encoded.items():
                with MmapWriter(folder / split, size) as writer:
                    for line in lines:
                        writer.add(line, [len(line)])
            counts = {"tokens": counted, "characters": characters, "dictionary_size": size}
            write_record(folder, {**planned, **counts, **more})
    return True


def read_parts(path: Path, *, valid_share: float) -> dict[str, str]:
    """The text's train and valid parts. A carriage return and a line feed are one line feed.

    :raises ValueError: the text is not UTF-8, has a NUL character, as files that are no text have, or a part is empty.
    """
    try:
        text = path.read_bytes().decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{line_name(path)}: byte {error.start:,} is not UTF-8: convert the text to UTF-8") from None
    if (nul := text.find("\0")) >= 0:
        raise ValueError(f"{line_name(path)}: character {nul:,} is NUL: expected a text file; remove such characters")
    count = math.floor(len(text) * (1 - valid_share) + 1e-6)  # rounded down, as in nanoGPT
    if not 0 < count < len(text):
        problem = f"has {len(text):,} characters: expected enough for train and valid"
        raise ValueError(f"{line_name(path)} {problem}; give a longer text")
    return {"train": text[:count], "valid": text[count:]}


def _lines(tokens: TextTokens, text: str) -> list[list[int]]:
    """The tokens of each line, with its end. The last line of a part may have no end."""
    end = [tokens.dictionary.eos_index]
    lines = [tokens.encode(line) + end for line in text.split("\n")]
    lines[-1].pop()
    return [line for line in lines if line]


def summary(folder: Path) -> str:
    """Describes a prepared folder: characters and tokens per split, and the size of the dictionary."""
    record = made_record(folder, TextRecord)
    counts = ", ".join(f"{split} {count:,}" for split, count in record["tokens"].items())
    return f"tokens: {counts}; dictionary: {record['dictionary_size']:,} tokens"
