"""Make a corpus ready for fairseq-train: download, verify, clean, tokenise, segment, binarise.

    rskip prepare --list
    rskip prepare multi30k-en-de
    rskip prepare wmt14-en-de --output data-bin/wmt14 --workers 16

A killed or interrupted run goes on where it stopped when the same command is given again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rskip.cli._termination import termination_raises

SUBWORDS = ("bpe", "sentencepiece", "sentencepiece-bpe")  # rskip.text.subwords has them too, but loads slowly


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", nargs="?", metavar="CORPUS", help="name of a corpus, as --list shows it")
    parser.add_argument("--list", action="store_true", help="show the corpora and their terms of use")
    parser.add_argument("--output", metavar="DIR", help="folder to make (default: data-bin/CORPUS)")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        default=os.cpu_count() or 1,
        help="processes; their number changes no byte (default: one a core)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a folder that was prepared, or begun, with other options"
    )

    files = parser.add_argument_group("files")
    files.add_argument(
        "--mirror", metavar="PLACE", help="folder or base URL with the upstream files under their own names"
    )
    files.add_argument(
        "--offline", action="store_true", help="download nothing: the files are in the cache (RSKIP_DATA) or the mirror"
    )

    cleaning = parser.add_argument_group(
        "cleaning",
        "Of training pairs; valid and test are never cleaned. By default as --list shows for the corpus.",
    )
    cleaning.add_argument("--no-clean", dest="clean", action="store_false", help="none but what is asked for here")
    cleaning.add_argument("--max-words", type=int, metavar="N", help="drop pairs with a longer side; 0: any length")
    cleaning.add_argument(
        "--max-ratio", type=float, metavar="R", help="drop pairs with a side of over R times the other's words; 0: any"
    )
    _yes_or_no(cleaning, "drop-empty", "empty", "drop pairs with an empty side")
    _yes_or_no(cleaning, "drop-duplicates", "duplicates", "drop all but the first of equal pairs")
    cleaning.add_argument(
        "--keep-duplicates", dest="duplicates", action="store_false", help="the same as --no-drop-duplicates"
    )
    _yes_or_no(cleaning, "drop-leaks", "leaks", "drop pairs that are also in valid or test")
    _yes_or_no(cleaning, "language-filter", "languages", "drop pairs of which a side is in another language")
    _yes_or_no(
        cleaning, "remove-non-printing", "remove_non_printing", "remove control and format characters"
    )
    cleaning.add_argument(
        "--entities", choices=("keep", "unescape"), help="keep HTML entities such as &quot;, or make characters of them"
    )

    units = parser.add_argument_group("subword units")
    units.add_argument("--subword", choices=SUBWORDS, default="bpe", help="kind (default: bpe, that of subword-nmt)")
    units.add_argument(
        "--bpe-size",
        type=int,
        metavar="N",
        help="BPE merges or SentencePiece units (default: the corpus's own)",
    )
    units.add_argument(
        "--learn-sample",
        type=int,
        metavar="N",
        help="learn them from every k-th pair, about N in all (default: at most 5,000,000; SentencePiece 500,000)",
    )
    units.add_argument(
        "--bpe-dropout",
        type=float,
        default=0.0,
        metavar="P",
        help="leave each merge out with this probability, in train alone",
    )

    data = parser.add_argument_group("data")
    data.add_argument(
        "--shards",
        type=int,
        default=1,
        metavar="N",
        help="parts of the training set, each an epoch of fairseq-train, for corpora larger than memory",
    )
    data.add_argument("--pairs", type=int, metavar="N", help="training pairs of a generated corpus")
    data.add_argument("--seed", type=int, metavar="N", help="of a generated corpus")


def _yes_or_no(group: argparse._ArgumentGroup, flag: str, option: str, text: str) -> None:
    group.add_argument(f"--{flag}", dest=option, action=argparse.BooleanOptionalAction, default=None, help=text)


def run(args: argparse.Namespace) -> int | None:
    from rskip.corpora import PrepareOptions, find_corpus, prepare
    from rskip.corpora.cleaning import CleaningReport
    from rskip.corpora.preparation import CLEANING_FILE
    from rskip.corpora.record import data_path, read_record
    from rskip.corpora.work_folder import read_json

    if args.list:
        _print_corpora()
        return None
    if args.corpus is None:
        raise ValueError("which corpus? `rskip prepare --list` shows them")
    if args.workers < 1:
        raise ValueError(f"--workers is {args.workers}: expected 1 or more")
    corpus = find_corpus(args.corpus)
    output = Path(args.output or Path("data-bin") / corpus.name)
    options = PrepareOptions(
        subwords=args.subword,
        size=args.bpe_size,
        pairs=args.pairs,
        seed=args.seed,
        clean=args.clean,
        remove_non_printing=args.remove_non_printing,
        entities=args.entities,
        empty=args.empty,
        max_words=args.max_words,
        max_ratio=args.max_ratio,
        duplicates=args.duplicates,
        leaks=args.leaks,
        languages=args.languages,
        learn_sample=args.learn_sample,
        bpe_dropout=args.bpe_dropout,
        shards=args.shards,
    )
    with termination_raises():
        made = prepare(
            corpus,
            output,
            options=options,
            mirror=args.mirror,
            offline=args.offline,
            workers=args.workers,
            force=args.force,
        )
    record = read_record(output)
    assert record is not None
    if made and (output / CLEANING_FILE).exists():
        print(CleaningReport.from_dict(read_json(output / CLEANING_FILE)).table())
    counts = ", ".join(f"{split} {count:,}" for split, count in record["sentences"].items())
    print(
        f"{output} is {'ready' if made else 'up to date, nothing was done'}: "
        f"pairs: {counts}; dictionary: {record['dictionary_size']:,} tokens"
    )
    if args.shards > 1:
        print(f"train on all shards with: fairseq-train {data_path(output, record)}")
    sys.stdout.flush()
    return None


def _print_corpora() -> None:
    from rskip.corpora import CORPORA, describe

    print("\n".join(describe(corpus) for corpus in CORPORA.values()))
