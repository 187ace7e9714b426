"""How fast the kernels' 8-bit products are, next to the fastest that the processor's instructions allow.

The peak is that of a loop that holds only the instructions of a product, on registers: `vpdpbusd` (AVX-512 with VNNI),
or `vpmaddubsw` twice, `vpaddw`, `vpmaddwd`, `vpaddd` (AVX2). The products are those of a decoding step of 64 sentences
with 4 beams. One thread; the kernel and the loop take turns. Prints a table and appends one JSON line to
study/results/benchmarks/int8_peak.jsonl. RSKIP_NATIVE=avx2 measures the products with AVX2.

    python benchmarks/int8_peak.py [--rounds 21]
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measuring.record import append_record, benchmark_parser, instructions
from torch import nn

from rskip.cpu.linear import Int8Linear

ROWS = 256
MAPS = ((256, 1024), (1024, 256), (512, 2048), (2048, 512), (512, 512), (512, 32_000))  # inputs, outputs
TURNS = 400_000
# the instructions, by the number of a register for sums; and the products of two numbers in one turn of the loop
VNNI = [f"vpdpbusd %zmm31,%zmm30,%zmm{sum_}" for sum_ in range(24)], 24 * 64
AVX2 = [
    line
    for sum_ in range(8)
    for line in (
        "vpmaddubsw %ymm15,%ymm14,%ymm12", "vpmaddubsw %ymm14,%ymm15,%ymm13", "vpaddw %ymm12,%ymm13,%ymm12",
        "vpmaddwd %ymm15,%ymm12,%ymm12", f"vpaddd %ymm12,%ymm{sum_},%ymm{sum_}",
    )
], 8 * 64  # fmt: skip


def build_loop(lines: list[str], folder: Path) -> Callable[[], object]:
    """A function that runs the instructions TURNS times."""
    registers = sorted({word for line in lines for word in line.replace(",", " ").replace("%", " ").split()[1:]})
    clobbered = ", ".join(f'"{register.replace("zmm", "xmm").replace("ymm", "xmm")}"' for register in registers)
    code = "\\n".join(line.replace("%", "%%") for line in lines)
    source, library = folder / "peak.c", folder / "peak.so"
    loop = f'__asm__ volatile("{code}" ::: {clobbered});'
    source.write_text(f"void peak(void) {{ for (long turn = 0; turn < {TURNS}; turn++) {loop} }}\n")
    flags = ["-O2", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    function: Callable[[], object] = ctypes.CDLL(str(library)).peak
    return function


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The time of one call."""
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats


def main() -> None:
    parser = benchmark_parser(__doc__, "int8_peak")
    parser.add_argument("--rounds", type=int, default=21, help="number of timed pairs (default: 21)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kernels = instructions()["kernels"]
    lines, products = VNNI if "bfloat16" in kernels else AVX2
    rows = []
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        peak = build_loop(lines, Path(folder))
        for inputs, outputs in MAPS:
            layer, x = Int8Linear(nn.Linear(inputs, outputs)), torch.randn(ROWS, inputs)
            layer(x)
            repeats = max(1, 50_000_000 // (inputs * outputs * 32))
            speeds = []
            for _ in range(args.rounds):
                ours = ROWS * inputs * outputs / seconds(lambda layer=layer, x=x: layer(x), repeats)
                speeds.append((ours / 1e9, ours / (TURNS * products / seconds(peak, 1))))
            speed, share = (statistics.median(each) for each in zip(*speeds, strict=True))
            row = {"inputs": inputs, "outputs": outputs, "billions_per_second": round(speed, 1)}
            rows.append({**row, "share": round(share, 3)})
            print(f"{inputs:6} x {outputs:6} {speed:8.1f} billion products/s {share:5.0%} of the peak", flush=True)
    append_record(args.output, "int8_peak", {"rounds": args.rounds, "rows_of_x": ROWS, "threads": 1, "maps": rows})


if __name__ == "__main__":
    main()
