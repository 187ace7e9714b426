"""Time of each stage of `rskip prepare` on text like WMT'14's, and an estimate of the hours for WMT'14.

The text is newstest2012 and newstest2013 in English and French, repeated to two numbers of pairs, and prepared with
WMT'14's settings (but repetitions stay). The cost per pair in each stage is the difference between the two runs, so
constant costs such as starting processes are excluded. From these rates it estimates the hours for WMT'14's numbers of
pairs, without learning codes, whose time is bounded: with the measured number of workers, and with 16 workers if stages
scale as from 1 to 2. Prints tables, appends one JSON line to study/results/benchmarks/prepare_stages.jsonl.

    python benchmarks/prepare_stages.py --texts FOLDER [--pairs 100000 300000] [--workers 1 2]

FOLDER contains newstest201{2,3}.{en,fr} and newstest2014.en-fr.{en,fr}, plain or with .gz.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring.record import append_record, benchmark_parser

from rskip.corpora import PrepareOptions, find_corpus, preparation
from rskip.corpora.corpus import ParallelText, PublishedCorpus, Text, UpstreamFile
from rskip.corpora.formats import read_sentences

LANGUAGES = ("en", "fr")
TRAIN, HELD_OUT = ("newstest2012", "newstest2013"), "newstest2014.en-fr"
LEARNING = "learn codes"
STAGES = {
    "check": "_count",
    "tokenise and clean": "tokenise",
    LEARNING: "learn",
    "segment": "segment",
    "binarise": "binarise",
}
WITH_WORKERS = ("tokenise and clean", "segment", "binarise")
PAIRS = {"WMT'14 EN-DE": 4_500_000, "WMT'14 EN-FR": 36_000_000}  # as in the papers
CORES = 16


def read(folder: Path, name: str) -> list[str]:
    path = folder / name
    return list(read_sentences(path if path.exists() else path.with_name(f"{name}.gz")))


def corpus_of(texts: Path, folder: Path, pairs: int) -> PublishedCorpus:
    """WMT'14 EN-FR with the files in `folder` as training text."""
    splits = {}
    for split, names, count in (("train", TRAIN, pairs), ("valid", (HELD_OUT,), 500), ("test", (HELD_OUT,), 500)):
        sides = {}
        for language in LANGUAGES:
            lines = [line for name in names for line in read(texts, f"{name}.{language}")]
            path = folder / f"{split}.{language}"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in itertools.islice(itertools.cycle(lines), count))
            sides[language] = Text(file=UpstreamFile(name=path.name, url=path.as_uri()))
        splits[split] = (ParallelText(name=split, sides=sides, sentences=count),)
    return dataclasses.replace(find_corpus("wmt14-en-fr"), folder="benchmark", splits=splits)


def measure(texts: Path, pairs: int, workers: int) -> dict[str, float]:
    """Seconds of each stage, and in total."""
    seconds = dict.fromkeys(STAGES, 0.0)

    def timed(stage: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def run_timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return run(*args, **kwargs)
            finally:
                seconds[stage] += time.perf_counter() - start

        return run_timed

    originals = {name: getattr(preparation, name) for name in STAGES.values()}
    with tempfile.TemporaryDirectory() as temporary:
        corpus = corpus_of(texts, Path(temporary), pairs)
        for stage, name in STAGES.items():
            setattr(preparation, name, timed(stage, originals[name]))
        start = time.perf_counter()
        try:
            options = PrepareOptions(duplicates=False, leaks=False)
            preparation.prepare(corpus, Path(temporary, "data"), options=options, mirror=temporary, workers=workers)
        finally:
            for name, original in originals.items():
                setattr(preparation, name, original)
        return {**seconds, "whole": time.perf_counter() - start}


def hours(rates: dict[str, dict[str, float]], pairs: int) -> dict[str, float]:
    """Hours by number of workers, from seconds per pair in each stage except learning; the last has CORES workers."""
    stages = [stage for stage in STAGES if stage != LEARNING]
    found = {
        f"{workers} workers": sum(rate[stage] for stage in stages) * pairs / 3600 for workers, rate in rates.items()
    }
    (few, slow), (many, fast) = list(rates.items())
    gained = {stage: slow[stage] / fast[stage] / (int(many) / int(few)) for stage in WITH_WORKERS}
    seconds = sum(
        slow[stage] * int(few) / CORES / min(gained[stage], 1.0) if stage in WITH_WORKERS else fast[stage]
        for stage in stages
    )
    return {name: round(value, 2) for name, value in {**found, f"{CORES} cores": seconds * pairs / 3600}.items()}


def main() -> None:
    parser = benchmark_parser(__doc__, "prepare_stages")
    parser.add_argument("--texts", type=Path, metavar="FOLDER")
    parser.add_argument("--pairs", type=int, nargs=2, default=[100_000, 300_000], metavar="N")
    parser.add_argument("--workers", type=int, nargs=2, default=[1, 2], metavar="N")
    args = parser.parse_args()
    if args.texts is None:
        print("not measured: give --texts FOLDER")
        return

    times = {w: {n: measure(args.texts, n, w) for n in args.pairs} for w in args.workers}
    fewer, more = args.pairs
    rates = {
        str(workers): {stage: (of[more][stage] - of[fewer][stage]) / (more - fewer) for stage in STAGES}
        for workers, of in times.items()
    }
    columns = [f"{n:,} pairs, {w} workers" for w in args.workers for n in args.pairs]
    print(f"| stage, seconds | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}")
    for stage in [*STAGES, "whole"]:
        cells = [f"{times[w][n][stage]:.1f}" for w in args.workers for n in args.pairs]
        print(f"| {stage} | {' | '.join(cells)} |")
    estimates = {name: hours(rates, pairs) for name, pairs in PAIRS.items()}
    seconds = {str(w): {str(n): {k: round(v, 2) for k, v in s.items()} for n, s in t.items()} for w, t in times.items()}
    append_record(args.output, "prepare_stages", {"seconds": seconds, "hours": estimates})
    print(f"\n{json.dumps(estimates)}")


if __name__ == "__main__":
    main()
