"""Training on an AMD processor with AVX-512: PyTorch as it is, and with MKL told to use AVX-512.

MKL, PyTorch's library for float32 matrix products, uses AVX2 on AMD processors. A library that replaces MKL's test for
an Intel processor, loaded with LD_PRELOAD, makes it use AVX-512 (docs/speed.md). Two processes, one with this library,
do updates of the same model in turn, on one thread. Prints a table and appends one JSON line to
study/results/benchmarks/amd_products.jsonl. On other processors the ratio is about 1.

    python benchmarks/amd_products.py [--rounds 21] [--models language_modeling_4 translation]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from connection_cost import MODELS, update
from measuring.record import append_record, benchmark_parser
from measuring.rounds import compare

SOURCE = "int mkl_serv_intel_cpu_true() { return 1; }\n"


class Updates:
    """A process that does one update of the model per line that it is sent."""

    def __init__(self, model: str, library: Path | None = None) -> None:
        environment = {**os.environ, **({} if library is None else {"LD_PRELOAD": str(library)})}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", model],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment,
        )  # fmt: skip

    def __call__(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        assert self.process.stdout.readline() == "done\n"

    def end(self) -> None:
        self.process.communicate()


def serve(model: str) -> None:
    torch.set_num_threads(1)
    step = update(MODELS[model], MODELS[model].baseline)
    for _ in sys.stdin:
        step()
        print("done", flush=True)


def main() -> None:
    parser = benchmark_parser(__doc__, "amd_products")
    parser.add_argument("--rounds", type=int, default=21, help="number of timed pairs of updates (default: 21)")
    names = ["language_modeling_4", "language_modeling_24", "translation"]
    parser.add_argument("--models", nargs="+", choices=MODELS, default=names, help=f"default: {' '.join(names)}")
    parser.add_argument("--serve", choices=MODELS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "avx512.so"
        subprocess.run(
            [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)],
            input=SOURCE, text=True, check=True,
        )  # fmt: skip
        for name in args.models:
            plain, told = Updates(name), Updates(name, library)
            row = {"model": name, "description": MODELS[name].description, **compare(plain, told, args.rounds)}
            plain.end(), told.end()
            print("  ".join(f"{key} {value}" for key, value in row.items() if key != "description"), flush=True)
            rows.append(row)
    append_record(args.output, "amd_products", {"rounds": args.rounds, "rows": rows})


if __name__ == "__main__":
    main()
