"""Scores translations, for `rskip evaluate`."""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path

from rskip.cli._options import refuse_flags
from rskip.translation.generated import read_lines
from rskip.translation.metric_table import METRICS
from rskip.translation.metrics import Comparison, Score, paired_bootstrap, score
from rskip.translation.systems import (
    System,
    check_german,
    has_only_tokens,
    read_system,
    reference_file,
    score_tokens,
    to_json,
)


def run(args: argparse.Namespace) -> None:
    """Prints the scores of the system, and those of the baseline with the test of their difference."""
    if args.generated is not None:
        if args.data is None:
            raise ValueError("--generated needs --data: the corpus folder from `rskip prepare` or fairseq-preprocess")
        if has_only_tokens(args.data):
            evaluate_tokens(args)
            return
        if args.reference is not None:
            refuse_flags({"--split": args.split}, "is not for the lines of --reference")
        reference = args.reference or reference_file(args.data, args.split or "test")
    else:
        if args.reference is None:
            raise ValueError("--hypothesis needs --reference: a file with one raw reference per line")
        refuse_flags({"--data": args.data, "--split": args.split}, "is only for --generated")
        reference = args.reference
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
        system = systems[role] = read_system(path, data=args.data)
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
    flags = {"--reference": args.reference, "--baseline": args.baseline, "--compound-split": args.compound_split}
    refuse_flags(flags, f"needs raw sentences, but {args.data} from fairseq-preprocess has only tokens")
    scores, sentences = score_tokens(args.generated, data=args.data, split=args.split or "test")
    if args.json:
        print(to_json({"system": scores}, [], sentences=sentences))
    else:
        print_scores(args.generated, scores, sentences=sentences)


def print_scores(path: Path, scores: dict[str, Score], *, sentences: int) -> None:
    """Prints one line per metric, with its signature."""
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
