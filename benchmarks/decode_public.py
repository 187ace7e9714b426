"""Translation speed at the shapes of public models: CTranslate2 and ours, on the same sentences with the same weights.

The models are random and have the sizes of an opus-mt (Marian) and of NLLB-600M. Every target has 30 tokens. Both
systems, in float32 and int8, take turns, each in its own process. A ratio compares times of the same round; the median
over the rounds is reported, with minimum and maximum. Before timing, the benchmark counts how many of CTranslate2's
float32 hypotheses are ours. Prints a table and appends one JSON line to study/results/benchmarks/decode_public.jsonl.

    python benchmarks/decode_public.py [--rounds 5] [--threads 1] [--only opus-mt nllb] [--quick]

NLLB's shape needs 5 GB of disk and 12 GB of memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from decoding.processes import SystemProcess
from decoding.public import SEARCH, SHAPES, Shape, random_dictionary, write_models
from decoding.random_text import random_sentences
from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max, ratios, report, take_turns

OURS = {precision: f"stored {precision}" for precision in ("float32", "int8")}
CT2 = {precision: f"CTranslate2 {precision}" for precision in ("float32", "int8")}
FOLDERS = {**dict.fromkeys(OURS.values(), "rskip"), **dict.fromkeys(CT2.values(), "ct2")}


def measure(shape: Shape, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The rows of one shape."""
    vocabulary = 500 if args.quick else shape.vocabulary
    report(f"{shape.name}: writing the model")
    parameters = write_models(shape, folder, vocabulary=vocabulary)
    dictionary = random_dictionary(vocabulary)
    systems = {
        name: SystemProcess(name, None, dictionary, dictionary, SEARCH, folder=folder / place, threads=args.threads)
        for name, place in FOLDERS.items()
    }
    count = 4 if args.quick else args.sentences
    sentences = random_sentences(count, (10, 31), vocabulary=vocabulary)

    def timed(system: SystemProcess) -> float:
        system.translate(sentences, args.batch_size)
        return system.seconds

    report(f"{shape.name}: warm-up")
    found = {name: system.translate(sentences, args.batch_size) for name, system in systems.items()}
    if any(len(each) != SEARCH.length for hypotheses in found.values() for each in hypotheses):
        raise SystemExit(f"{shape.name}: a target's length is not {SEARCH.length}")
    rounds = 2 if args.quick else args.rounds
    calls = {name: partial(timed, system) for name, system in systems.items()}
    times = take_turns(calls, rounds, title=shape.name)
    for system in systems.values():
        system.close()
    tokens = sum(len(each) + 1 for each in found[OURS["float32"]])
    rows = []
    for name in FOLDERS:
        precision = name.split()[1]
        equal = [one == other for one, other in zip(found[name], found[OURS["float32"]], strict=True)]
        rows.append(
            {
                "system": name.replace("stored", "rskip"),
                "seconds": round(statistics.median(times[name]), 3),
                "tokens_per_second": round(tokens / statistics.median(times[name])),
                "ratio_to_ct2": median_min_max(ratios(times, CT2[precision], name)),
                "same_hypotheses": round(100 * sum(equal) / len(equal), 1),
            }
        )
    return {
        "shape": shape.name,
        "parameters": parameters,
        "vocabulary": vocabulary,
        "sentences": count,
        "batch_size": args.batch_size,
        "beam": SEARCH.beam,
        "steps": tokens // count,
        "rows": rows,
    }


def main() -> None:
    parser = benchmark_parser(__doc__, "decode_public")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--only", nargs="+", choices=SHAPES, default=list(SHAPES), help="shapes (default: all)")
    parser.add_argument("--quick", action="store_true", help="test run with tiny vocabularies, without a record")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # of the systems' processes
    torch.set_num_threads(args.threads)
    found = []
    for name in args.only:
        with tempfile.TemporaryDirectory() as temporary:
            found.append(measure(SHAPES[name], args, Path(temporary)))
        print(f"\n{found[-1]['shape']}, {found[-1]['parameters']:,} parameters, beam {SEARCH.beam}\n")
        print("| system | seconds | target tokens/s | × CTranslate2 (min to max) | same hypotheses |")
        print("|---|---|---|---|---|")
        for row in found[-1]["rows"]:
            ratio = "{:.2f} ({:.2f} to {:.2f})".format(*row["ratio_to_ct2"])
            print(
                f"| {row['system']} | {row['seconds']:.2f} | {row['tokens_per_second']:,} | {ratio} | "
                f"{row['same_hypotheses']} % |"
            )
    path = Path(os.devnull) if args.quick else args.output
    values = {"rounds": args.rounds, "threads": args.threads, "shapes": found}
    append_record(path, "decode_public", values)


if __name__ == "__main__":
    main()
