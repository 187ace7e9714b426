"""Make a corpus ready for fairseq-train: download, verify, tokenise, segment, binarise."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", nargs="?", metavar="CORPUS", help="name of a corpus, as --list shows it")
    parser.add_argument("--list", action="store_true", help="show the corpora and their terms of use")
    parser.add_argument("--output", metavar="DIR", help="folder to make (default: data-bin/CORPUS)")
    parser.add_argument(
        "--mirror", metavar="PLACE", help="folder or base URL with the upstream files under their own names"
    )
    parser.add_argument(
        "--subword", choices=("bpe", "sentencepiece"), default="bpe", help="kind of subword units"
    )
    parser.add_argument(
        "--bpe-size",
        type=int,
        metavar="N",
        help="BPE merges or SentencePiece units (default: the corpus's own)",
    )
    parser.add_argument("--pairs", type=int, metavar="N", help="training pairs of a generated corpus")
    parser.add_argument("--seed", type=int, metavar="N", help="of a generated corpus")
    parser.add_argument("--workers", type=int, metavar="N", default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--force", action="store_true", help="replace a folder prepared with other options")


def run(args: argparse.Namespace) -> int | None:
    from rskip.corpora import CORPORA, PrepareOptions, find_corpus, prepare
    from rskip.corpora.record import read_record

    if args.list:
        for corpus in CORPORA.values():
            print(f"{corpus.name}: {corpus.homepage}\n  terms: {corpus.licence}\n  source: {corpus.citation}")
        return None
    if args.corpus is None:
        raise ValueError("which corpus? `rskip prepare --list` shows them")
    if args.workers < 1:
        raise ValueError(f"--workers is {args.workers}: expected 1 or more")
    corpus = find_corpus(args.corpus)
    output = Path(args.output or Path("data-bin") / corpus.name)
    options = PrepareOptions(subwords=args.subword, size=args.bpe_size, pairs=args.pairs, seed=args.seed)
    made = prepare(
        corpus, output, options=options, mirror=args.mirror, workers=args.workers, force=args.force
    )
    record = read_record(output)
    assert record is not None
    counts = ", ".join(f"{split} {count:,}" for split, count in record["sentences"].items())
    print(
        f"{output} is {'ready' if made else 'up to date, nothing was done'}: "
        f"pairs: {counts}; dictionary: {record['dictionary_size']:,} tokens"
    )
    return None
