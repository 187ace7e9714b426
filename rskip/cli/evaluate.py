"""Score translations with sacreBLEU, chrF, exact matches and tokenised BLEU; compare with a baseline by bootstrap."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """examples:
  rskip evaluate --hypothesis output.de --reference test.de --baseline other-output.de
  rskip evaluate --generated generate-test.txt --data data-bin/multi30k-en-de --split test
  rskip evaluate --hypothesis output.de --reference newstest2014.de --compound-split"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EXAMPLES
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--hypothesis",
        type=Path,
        metavar="FILE",
        help="raw translations, one per line, or what `rskip translate` wrote with --scores, --nbest or --format json",
    )
    what.add_argument(
        "--generated", type=Path, metavar="FILE", help="output of fairseq-generate; needs --data"
    )
    parser.add_argument("--reference", type=Path, metavar="FILE", help="raw references, one per line")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="folder from `rskip prepare`; or from fairseq-preprocess, for tokenised BLEU only",
    )
    parser.add_argument(
        "--split", metavar="NAME", help="translated split of --data (default: test)"
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="translations of another system, in the same format",
    )
    parser.add_argument(
        "--samples", type=int, metavar="N", help="number of bootstrap resamples, with --baseline (default: 1000)"
    )
    parser.add_argument(
        "--compound-split",
        action="store_true",
        help="also print BLEU as papers report it for WMT'14 English-German: on German tokens of Moses with hyphenated "
        "compounds split; not comparable with sacreBLEU",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
