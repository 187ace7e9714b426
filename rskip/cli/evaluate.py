"""Score translations with sacreBLEU, chrF, exact matches and tokenised BLEU; compare with a baseline by bootstrap."""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rskip.translation.metrics import Comparison, Score
    from rskip.translation.systems import System

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


def run(args: argparse.Namespace) -> None:
    """Prints the scores of the system, and those of the baseline with the test of their difference."""
    from rskip.cli._options import refuse_flags
    from rskip.translation.generated import read_lines
    from rskip.translation.metrics import paired_bootstrap, score
    from rskip.translation.systems import check_german, has_only_tokens, read_system, reference_file, to_json

    if args.generated is not None:
        if args.data is None:
            raise ValueError("--generated needs --data: the corpus folder from `rskip prepare` or fairseq-preprocess")
        if has_only_tokens(args.data):
            evaluate_tokens(args)
            return
        if args.reference is not None:
            refuse_flags({"--split": args.split}, "is not for the lines of --reference")
        split = args.split or "test" if args.reference is None else None
        reference = args.reference or reference_file(args.data, args.split or "test")
    else:
        if args.reference is None:
            raise ValueError("--hypothesis needs --reference: a file with one raw reference per line")
        refuse_flags({"--data": args.data, "--split": args.split}, "is only for --generated")
        reference, split = args.reference, None
    if args.baseline is None:
        refuse_flags({"--samples": args.samples}, "is only for --baseline")
    if args.compound_split and args.data is not None:
        check_german(args.data)
    references = read_lines(reference)
    names = {"system": args.hypothesis or args.generated}
    if args.baseline is not None:
        names["baseline"] = args.baseline

    systems: dict[str, System] = {}
    scores: dict[str, dict[str, Score]] = {}
    for role, path in names.items():
        system = systems[role] = read_system(path, data=args.data, split=split)
        if len(system.hypotheses) != len(references):
            raise ValueError(
                f"{path} has {len(system.hypotheses)} translations "
                f"but {reference} has {len(references)} lines: expected one translation per line"
            )
        scores[role] = score(
            system.hypotheses,
            references,
            tokenised_hypotheses=system.words,
            tokenised_references=system.reference_words,
            compound_split=args.compound_split,
            compound_split_own=args.compound_split and system.moses_words,
        )
    comparisons = []
    if args.baseline is not None:
        samples = 1000 if args.samples is None else args.samples
        comparisons = paired_bootstrap(
            systems["system"].hypotheses, systems["baseline"].hypotheses, references, samples=samples
        )
    if args.json:
        print(to_json(scores, comparisons, sentences=len(references)))
        return
    for role, path in names.items():
        print_scores(path, scores[role], sentences=len(references))
    if comparisons:
        print_comparisons(comparisons)


def evaluate_tokens(args: argparse.Namespace) -> None:
    """Prints the tokenised BLEU of a system, for data without raw sentences."""
    from rskip.translation.systems import score_tokens, to_json

    for name in ("reference", "baseline", "compound_split"):
        if getattr(args, name):
            problem = f"{args.flags[name]} needs raw sentences, but {args.data} from fairseq-preprocess has only tokens"
            raise ValueError(f"{problem}: leave it out")
    scores, sentences = score_tokens(args.generated, data=args.data, split=args.split or "test")
    if args.json:
        print(to_json({"system": scores}, [], sentences=sentences))
    else:
        print_scores(args.generated, scores, sentences=sentences)


def print_scores(path: Path, scores: dict[str, Score], *, sentences: int) -> None:
    """Prints one line per metric, with its signature."""
    from rskip.translation.metric_table import METRICS

    print(f"{path}: {sentences} sentences")
    for tokens, metrics in groupby(METRICS, key=lambda metric: metric.tokens):
        printed = [metric for metric in metrics if metric.name in scores]
        for metric in printed:
            value, signature = scores[metric.name]
            print(f"  {metric.label:15} {value:6.2f} {f' {signature}' if signature else '%'}")
        if printed and tokens:
            print(f"                  ({tokens}: not comparable with sacreBLEU)")


def print_comparisons(comparisons: list[Comparison]) -> None:
    """Prints one line per metric: difference, confidence intervals, p-value."""
    print(f"paired bootstrap, {comparisons[0].samples} resamples, system minus baseline:")
    for each in comparisons:
        print(
            f"  {each.metric:6} {each.system - each.baseline:+.2f}"
            f"  (system {each.system_mean:.2f} ± {each.system_interval:.2f},"
            f" baseline {each.baseline_mean:.2f} ± {each.baseline_interval:.2f})  p = {each.p_value:.4f}"
        )
