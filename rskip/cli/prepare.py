"""Prepare a corpus or your own text for training: clean, tokenise, segment, binarise.

    rskip prepare --list
    rskip prepare multi30k-en-de --list
    rskip prepare --source train.en --target train.de --output data
    rskip prepare multi30k-en-de
    rskip prepare wmt14-en-de --output data-bin/wmt14 --workers 16
    rskip prepare flickr8k --images Flicker8k_Dataset
    rskip prepare shakespeare-char
    rskip prepare --text book.txt --tokens subwords --output data-bin/book

To resume an interrupted run, repeat the command.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.captioning.preparation import CaptionOptions, prepare_captions
from rskip.captioning.preparation import summary as summary_of_captions
from rskip.cli._options import add_options, check_range, flag_of, given_options, refuse_flags, refuse_options
from rskip.cli._own_text import add_own_text_arguments, given_own_corpus, own_text_flag
from rskip.cli.main import termination_raises
from rskip.corpora import (
    CAPTION_CORPORA,
    CORPORA,
    TEXT_CORPORA,
    PrepareOptions,
    describe,
    find_caption_corpus,
    find_corpus,
    find_text_corpus,
    overview,
    prepare,
)
from rskip.corpora.cleaning import read_report, report_table
from rskip.corpora.own_corpus import OwnCorpus, reading_report
from rskip.corpora.record import CLEANING_FILE, TranslationRecord, data_path, made_record
from rskip.language_modeling.preparation import TextOptions, prepare_text
from rskip.language_modeling.preparation import summary as summary_of_text
from rskip.machine.cores import available_cores

if TYPE_CHECKING:
    from rskip.corpora.corpus import Corpus


_OF_UNITS = ("subwords", "size", "tokeniser", "lowercase", "learn_sample")
_OPTIONS = {"two languages": PrepareOptions, "image captions": CaptionOptions, "texts in one language": TextOptions}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", nargs="?", metavar="CORPUS", help="name of a corpus from --list")
    parser.add_argument("--list", action="store_true", help="list all corpora, or describe CORPUS")
    parser.add_argument(
        "--output", metavar="FOLDER",
        help="folder to write (default: data-bin/CORPUS; for your own pairs data-bin/own-SOURCE-TARGET, for --text "
        "data-bin/ and the file's name)",
    )  # fmt: skip
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        default=available_cores(),
        help="number of processes; the output doesn't depend on it (default: one per core)",
    )
    parser.add_argument("--force", action="store_true", help="replace a folder that was prepared with other options")

    add_own_text_arguments(parser)
    files = parser.add_argument_group("files of a corpus")
    files.add_argument(
        "--mirror", metavar="PLACE", help="folder or base URL with the upstream files, under their upstream names"
    )
    files.add_argument(
        "--offline", action="store_true", help="download nothing; read files from the cache (RSKIP_DATA) or the mirror"
    )
    files.add_argument(
        "--images",
        metavar="FOLDER",
        help="images of a caption corpus; missing images are skipped (default: images/ in the mirror)",
    )

    cleaning = parser.add_argument_group(
        "cleaning",
        "Cleaning applies only to training pairs. `rskip prepare CORPUS --list` shows the defaults of a corpus. "
        "Defaults for your own text: drop duplicates, leaks, and pairs with an empty side, more than 250 words or "
        "5,000 characters, or a length ratio over 9.",
    )
    cleaning.add_argument(
        "--no-clean", dest="clean", action="store_false", default=None, help="clean only by the options you give"
    )
    add_options(cleaning, PrepareOptions, only=("max_words", "max_characters", "max_ratio", "empty", "duplicates"))
    add_options(cleaning, PrepareOptions, only=("leaks", "languages", "remove_non_printing", "entities"))
    units = parser.add_argument_group("words and subword units")
    add_options(units, PrepareOptions, only=(*_OF_UNITS, "bpe_dropout"))
    units.add_argument(
        "--like", type=Path, metavar="MODEL",
        help="units and dictionary of a model of yours, to train it further with `rskip train DATA --from MODEL`",
    )  # fmt: skip
    add_options(parser.add_argument_group("data"), PrepareOptions, only=("shards", "pairs", "seed"))
    add_options(parser.add_argument_group("image captions"), CaptionOptions)
    texts = parser.add_argument_group("texts for language models")
    texts.add_argument("--text", metavar="FILE", help="your own text in one language, in UTF-8")
    add_options(texts, TextOptions)


def run(args: argparse.Namespace) -> int | None:
    if args.list:
        if args.corpus is None:
            print(overview([*CORPORA.values(), *CAPTION_CORPORA.values(), *TEXT_CORPORA.values()]))
        else:
            other = CAPTION_CORPORA.get(args.corpus) or TEXT_CORPORA.get(args.corpus)
            print(describe(other or find_corpus(args.corpus)))
        return None
    own_text = own_text_flag(args) or ("--text" if args.text is not None else None)
    if args.corpus is None and own_text is None:
        ways = "a name from `rskip prepare --list`, or --source and --target, or --text"
        raise ValueError(f"no corpus given: expected {ways}")
    if args.corpus is not None and own_text is not None:
        raise ValueError(f"{own_text} is for your own text: give either this flag or the corpus {args.corpus}")
    if own_text is not None:
        why = "is only for corpora from --list, not for your own text"
        refuse_flags({"--mirror": args.mirror, "--offline": args.offline}, why)
    check_range(args, "workers", 1, 1024)
    if args.corpus is not None or args.text is not None:
        refuse_flags({"--like": args.like}, "is only for your own sentence pairs")
    if args.like is not None:
        given = {flag_of(PrepareOptions, name): getattr(args, name) for name in _OF_UNITS}
        refuse_flags(given, "is given with --like, whose model determines it")
    kind = "two languages"
    if args.text is not None or args.corpus in TEXT_CORPORA:
        kind = "texts in one language"
    elif args.corpus in CAPTION_CORPORA:
        kind = "image captions"
    for name, options in _OPTIONS.items():
        if name != kind:
            refuse_options(args, options, f"is only for {name}")
    if kind != "image captions":
        refuse_flags({"--images": args.images}, "is only for image captions")
    with termination_raises():
        if kind == "texts in one language":
            _prepare_text(args)
        elif kind == "image captions":
            _prepare_captions(args)
        elif own_text is not None:
            with given_own_corpus(args) as corpus:
                _prepare(args, corpus)
        else:
            _prepare(args, find_corpus(args.corpus))
    sys.stdout.flush()
    return None


def _output(args: argparse.Namespace, name: str) -> Path:
    return Path(args.output or Path("data-bin") / name)


def _files(args: argparse.Namespace) -> dict[str, Any]:
    """Where the files come from, and whether a folder with others is replaced."""
    return {"mirror": args.mirror, "offline": args.offline, "force": args.force}


def _prepare(args: argparse.Namespace, corpus: Corpus) -> None:
    output = _output(args, corpus.name)
    options = PrepareOptions(**given_options(args, PrepareOptions))
    made = prepare(corpus, output, options=options, like=args.like, workers=args.workers, **_files(args))
    record = made_record(output, TranslationRecord)
    if made and isinstance(corpus, OwnCorpus):
        print(reading_report(corpus, record))
    if made and (output / CLEANING_FILE).exists():
        print(report_table(read_report(output / CLEANING_FILE)))
    counts = ", ".join(f"{split} {count:,}" for split, count in record["sentences"].items())
    print(f"{_ready(output, made)}: pairs: {counts}; dictionary: {record['dictionary_size']:,} tokens")
    if options.shards > 1:
        print(f"train on all shards with: fairseq-train {data_path(output, record)}")
    if isinstance(corpus, OwnCorpus):
        folder = shlex.quote(str(output))
        further = "" if args.like is None else f" --from {shlex.quote(str(args.like))}"
        print(f"inspect it with: rskip inspect {folder} --plot lengths.svg")
        print(f"train on it with: rskip train {folder}{further}")


def _prepare_captions(args: argparse.Namespace) -> None:
    output = _output(args, args.corpus)
    options = CaptionOptions(**given_options(args, CaptionOptions))
    corpus = find_caption_corpus(args.corpus)
    made = prepare_captions(corpus, output, options=options, images=args.images, **_files(args))
    first, *more = summary_of_captions(output)
    print("\n".join([f"{_ready(output, made)}: {first}", *more]))


def _prepare_text(args: argparse.Namespace) -> None:
    if args.text is not None and (flag := own_text_flag(args)) is not None:
        raise ValueError(f"--text and {flag} are given: expected one of them")
    output = _output(args, args.corpus or Path(args.text).name.partition(".")[0])
    options = TextOptions(**given_options(args, TextOptions))
    text = find_text_corpus(args.corpus) if args.text is None else Path(args.text)
    made = prepare_text(text, output, options=options, **_files(args))
    folder = shlex.quote(str(output))
    print(f"{_ready(output, made)}: {summary_of_text(output)}")
    print(f"train on it with: rskip lm train {folder} --connection 2rskip+ln --output runs/{shlex.quote(output.name)}")


def _ready(output: Path, made: bool) -> str:
    return f"{output} is {'ready' if made else 'up to date (nothing to do)'}"
