"""Translation speed: fairseq-generate, CTranslate2 and ours, on the same sentences with the same weights.

The workloads are this project's Multi30k models on their test set, and random models of two sizes whose targets all
have the same length. All systems alternate, each in its own process with the same number of threads. A ratio compares
times of the same round; the median over rounds is reported. Before timing, the benchmark checks that the work is the
same: in float32 the trained model gives the same hypotheses (99 %), and random models give equal numbers of target
tokens. It also measures the latency of one sentence, and the peak memory for growing batches and lengths. Prints
tables and appends a JSON line to study/results/benchmarks/decode.jsonl after each part of a workload.

With --device cuda, fairseq-generate and ours translate random sentences with Transformer-base on a GPU, in batches of
1, 64 and 512, and the peak memory is measured too.

    python benchmarks/decode.py [--rounds 5] [--threads 2] [--mirror FOLDER] [--only small latency] [--quick]
    python benchmarks/decode.py --device cuda [--rounds 5] [--quick]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from decoding.gpu import BATCHES, measure_on_gpu, print_on_gpu
from decoding.latency import build_onnx_systems, measure_latency, print_latency
from decoding.memory import POINTS, measure_memory, print_memory
from decoding.speed import build_systems, measure_speed, print_speed
from decoding.workloads import Workload, base, small, trained
from measuring.gpu import named_device
from measuring.record import append_record, benchmark_parser

from rskip.machine.environment import available_cores

PARTS = ("trained", "small", "base", "latency", "memory")


def parse_arguments() -> argparse.Namespace:
    parser = benchmark_parser(__doc__, "decode")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=available_cores(), help="threads (default: %(default)s)")
    parser.add_argument("--mirror", help="folder or address with Multi30k's files (default: its publisher)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="test run with few sentences and 2 rounds, without a record"
    )
    parser.add_argument("--device", type=named_device, default="cpu", help="cpu, cuda or one GPU such as cuda:1")
    return parser.parse_args()


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures and prints all requested parts, and yields each when it is done."""
    quick, rounds = args.quick, min(args.rounds, 2) if args.quick else args.rounds
    settings = {"rounds": rounds, "threads": args.threads}
    workloads: dict[str, Callable[[], Workload]] = {
        "trained": lambda: trained(args.mirror, sentences=32 if quick else None),
        "small": lambda: small(sentences=16 if quick else 128),
        "base": lambda: base(sentences=4 if quick else 64),
    }
    chosen = [name for name in workloads if name in args.only] or [name for name in workloads if "latency" in args.only]
    with tempfile.TemporaryDirectory() as temporary:
        for name in chosen:
            workload = workloads[name]()
            systems = build_systems(workload, Path(temporary, name), args.threads)
            if name in args.only:
                speed = measure_speed(workload, systems, rounds)
                print_speed(speed)
                yield {**settings, "speed": [speed]}
            if "latency" in args.only:
                systems.update(build_onnx_systems(workload, Path(temporary, f"{name}-onnx"), args.threads))
                latency = measure_latency(workload, systems, rounds)
                print_latency(latency)
                yield {**settings, "latency": [latency]}
            for system in systems.values():
                system.close()
        if "memory" in args.only:
            memory = measure_memory(Path(temporary, "memory"), POINTS[:2] if quick else POINTS, args.threads)
            print_memory(memory)
            yield {**settings, "memory": memory}


def measure_gpu(args: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints the systems on a GPU."""
    rounds = min(args.rounds, 2) if args.quick else args.rounds
    batches = {1: 2, 8: 16} if args.quick else BATCHES
    workload = (small if args.quick else base)(sentences=max(batches.values()))
    with tempfile.TemporaryDirectory() as temporary:
        found = measure_on_gpu(workload, Path(temporary), device=str(args.device), rounds=rounds, batches=batches)
    print_on_gpu(found)
    return {"device": str(args.device), "rounds": rounds, "gpu": found}


def main() -> None:
    args = parse_arguments()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # only for the record, since torch has already started
    torch.set_num_threads(args.threads)
    path = Path(os.devnull) if args.quick else args.output
    if args.device.type == "cuda":
        append_record(path, "decode", measure_gpu(args))
        return
    for each in measure(args):
        append_record(path, "decode", each)


if __name__ == "__main__":
    main()
