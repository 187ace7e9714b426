"""Make a corpus ready for fairseq-train: download, verify, clean, tokenise, segment, binarise.

    rskip prepare --list
    rskip prepare multi30k-en-de
    rskip prepare wmt14-en-de --output data-bin/wmt14 --workers 16

A killed or interrupted run goes on where it stopped when the same command is given again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rskip.cli.main import termination_raises


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rskip.cli._options import add_options
    from rskip.corpora import PrepareOptions
    from rskip.machine.environment import available_cores

    parser.add_argument("corpus", nargs="?", metavar="CORPUS", help="name of a corpus, as --list shows it")
    parser.add_argument("--list", action="store_true", help="show the corpora and their terms of use")
    parser.add_argument("--output", metavar="DIR", help="folder to make (default: data-bin/CORPUS)")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        default=available_cores(),
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
    cleaning.add_argument(
        "--no-clean", dest="clean", action="store_false", default=None, help="none but what is asked for here"
    )
    add_options(cleaning, PrepareOptions, only=("max_words", "max_ratio", "empty", "duplicates"))
    cleaning.add_argument(
        "--keep-duplicates", dest="duplicates", action="store_false", help="the same as --no-drop-duplicates"
    )
    add_options(cleaning, PrepareOptions, only=("leaks", "languages", "remove_non_printing", "entities"))
    units = parser.add_argument_group("subword units")
    add_options(units, PrepareOptions, only=("subwords", "size", "learn_sample", "bpe_dropout"))
    add_options(parser.add_argument_group("data"), PrepareOptions, only=("shards", "pairs", "seed"))


def run(args: argparse.Namespace) -> int | None:
    from rskip.cli._options import given_options, said_of_flag
    from rskip.corpora import CORPORA, PrepareOptions, describe, find_corpus, prepare
    from rskip.corpora.cleaning import CleaningReport
    from rskip.corpora.record import CLEANING_FILE, OutputError, data_path, read_record
    from rskip.corpora.work_folder import read_json
    from rskip.settings.errors import SettingError

    if args.list:
        print("\n".join(describe(corpus) for corpus in CORPORA.values()))
        return None
    if args.corpus is None:
        raise ValueError("which corpus? `rskip prepare --list` shows them")
    if args.workers < 1:
        raise ValueError(f"--workers is {args.workers}: expected 1 or more")
    corpus = find_corpus(args.corpus)
    output = Path(args.output or Path("data-bin") / corpus.name)
    try:
        options = PrepareOptions(**given_options(args, PrepareOptions))
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
    except SettingError as error:
        raise said_of_flag(error, PrepareOptions) from error
    except OutputError as error:
        raise ValueError(error.sentence(output="--output", force="--force")) from error
    record = read_record(output)
    assert record is not None
    if made and (output / CLEANING_FILE).exists():
        print(CleaningReport.from_dict(read_json(output / CLEANING_FILE)).table())
    counts = ", ".join(f"{split} {count:,}" for split, count in record["sentences"].items())
    print(
        f"{output} is {'ready' if made else 'up to date, nothing was done'}: "
        f"pairs: {counts}; dictionary: {record['dictionary_size']:,} tokens"
    )
    if options.shards > 1:
        print(f"train on all shards with: fairseq-train {data_path(output, record)}")
    sys.stdout.flush()
    return None

