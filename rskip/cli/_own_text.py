"""Arguments of `rskip prepare` that name the user's own files."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rskip.cli._options import add_options, refuse_flags
from rskip.corpora import PrepareOptions
from rskip.corpora.formats import TextFile
from rskip.corpora.own_corpus import read_own_corpus
from rskip.corpora.own_text import Table, choose_languages, files_of_prefixes, paired_files

if TYPE_CHECKING:
    from rskip.corpora.own_corpus import OwnCorpus
    from rskip.corpora.own_text import OwnText

_SPLITS = {
    "train": "to train on",
    "valid": "of the validation set",
    "test": "of the test set (several files: several test sets)",
}
_KINDS = ("source", "target", "prefix", "table")


def add_own_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags for source and target files, prefixes or tables of each split."""
    group = parser.add_argument_group(
        "your own text",
        "Options to give instead of CORPUS. Files may be compressed (.gz, .xz, .zst, .bz2). A validation or test set "
        "that you don't give is split off the training text (--valid, --test, --seed).",
    )
    for split, what in _SPLITS.items():
        metavars = {"source": "FILE", "target": "FILE", "prefix": "PREFIX", "table": "FILE"}
        helps = {
            "source": f"source sentences {what}, one per line",
            "target": "translations of the source sentences, line by line",
            "prefix": "instead of two files: PREFIX.SOURCE and PREFIX.TARGET, with the language codes",
            "table": "instead of two files: one pair per line, as tab-separated columns or a JSON object; -: standard "
            "input",
        }
        for kind in _KINDS:
            flag, dest = _flag(split, kind), _dest(split, kind)
            group.add_argument(flag, dest=dest, nargs="+", metavar=metavars[kind], help=helps[kind])
    both = ("SOURCE", "TARGET")
    group.add_argument(
        "--columns",
        nargs=2,
        metavar=both,
        help="numbers or names of the columns of a table (default: the language codes if columns have these names, "
        "otherwise the first two, in the order of the codes in the file's name)",
    )
    group.add_argument(
        "--languages",
        dest="language_codes",
        nargs=2,
        metavar=both,
        help="language codes, such as en de (default: from file names such as train.en or train.de.gz)",
    )
    add_options(group, PrepareOptions, only=("valid", "test"))


def own_text_flag(args: argparse.Namespace) -> str | None:
    """The first given flag that is for the user's own text; None if there is none."""
    flags = {_dest(split, kind): _flag(split, kind) for split in _SPLITS for kind in _KINDS}
    flags |= {"columns": "--columns", "language_codes": "--languages"}
    return next((flag for dest, flag in flags.items() if getattr(args, dest) is not None), None)


@contextmanager
def given_own_corpus(args: argparse.Namespace) -> Iterator[OwnCorpus]:
    """The corpus of the given files, which is usable within the block.

    :raises ValueError: contradictory flags; also as `read_own_corpus`.
    """
    if not any(getattr(args, _dest(split, "table")) for split in _SPLITS):
        refuse_flags({"--columns": args.columns}, "is only for a table")
    with tempfile.TemporaryDirectory(prefix="rskip-prepare-") as folder:
        texts: dict[str, list[OwnText]] = {}
        for split in sorted(_SPLITS, key=lambda split: getattr(args, _dest(split, "prefix")) is not None):
            texts[split] = _texts(args, split, Path(folder), [text for each in texts.values() for text in each])
        if not texts["train"]:
            raise ValueError("no text to train on: give --source and --target, --train-prefix or --table")
        source, target = choose_languages([text for each in texts.values() for text in each], args.language_codes)
        yield read_own_corpus(texts, source=source, target=target)


def _flag(split: str, kind: str) -> str:
    return f"--{kind}" if split == "train" and kind != "prefix" else f"--{split}-{kind}"


def _dest(split: str, kind: str) -> str:
    return f"own_{split}_{kind}"


def _texts(args: argparse.Namespace, split: str, folder: Path, before: Sequence[OwnText]) -> list[OwnText]:
    """The texts of a split.

    :param before: texts of other splits, whose names may have the codes that prefixes need.
    """
    given = {kind: getattr(args, _dest(split, kind)) for kind in _KINDS}
    texts: list[OwnText] = []
    for kind, other in (("source", "target"), ("target", "source")):
        if given[kind] and not given[other]:
            raise ValueError(f"{_flag(split, kind)} is given without {_flag(split, other)}: give both")
    if given["source"]:
        for name in (*given["source"], *given["target"]):
            if name == "-":
                raise ValueError(
                    f"- (standard input) can't be two files: give both sides as a table, {_flag(split, 'table')} -"
                )
        texts += paired_files(given["source"], given["target"])
    if given["prefix"]:
        named = (text.languages for text in (*before, *texts))
        if (codes := args.language_codes or next(filter(None, named), None)) is None:
            flag = _flag(split, "prefix")
            raise ValueError(f"{flag} needs the codes at the end of the file names: give --languages, such as en de")
        texts += files_of_prefixes(given["prefix"], codes)
    columns = None if args.columns is None else (args.columns[0], args.columns[1])
    for name in given["table"] or ():
        file = TextFile(_standard_input(folder), name="standard input") if name == "-" else TextFile(Path(name))
        texts.append(Table(file, columns))
    return texts


def _standard_input(folder: Path) -> Path:
    """Copies standard input to a file, since it is read several times."""
    path = folder / "standard-input"
    if path.exists():
        raise ValueError("standard input is given twice: it can be read only once")
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
    return path
