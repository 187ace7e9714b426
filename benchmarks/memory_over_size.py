"""Memory by input size: `rskip translate` with workers, interrupted and resumed, `rskip prepare`, and a large model.

Each command runs as for a user. Every `--every` seconds the benchmark measures the memory of all its processes. The
lines to translate repeat the first words of Multi30k's test set, so the output must repeat too; this is checked. The
pairs to prepare are generated. The large model is a random one of 1.4 billion parameters, as wide and deep as
NLLB-1.3B; in each precision, `rskip translate` loads it and translates one line. Prints the curve and appends one JSON
line to study/results/benchmarks/memory_over_size.jsonl.

    python benchmarks/memory_over_size.py translate --mirror FOLDER [--lines 1000000] [--workers 2] [--words 4]
    python benchmarks/memory_over_size.py prepare [--pairs 5000000] [--workers 2]
    python benchmarks/memory_over_size.py large [--precisions int8 bfloat16] [--layers 24] [--dtype bfloat16]

Without a command it runs the first two, with 100,000 lines and pairs. The large model needs 3 GB of disk.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring.memory import memory
from measuring.multi30k import multi30k
from measuring.record import append_record, benchmark_parser

from rskip.checkpoint import Checkpoint, write_model
from rskip.text import Dictionary
from rskip.transformer import Transformer, TransformerConfig

RSKIP = (sys.executable, "-m", "rskip")
MODEL = Path(__file__).resolve().parents[1] / "checkpoints/multi30k_en_de/2rskip_ln"
WINDOW = 2000  # lines, the default of --buffer-size; twice the test set


def watch(
    command: list[str], done: Callable[[], int], *, every: float, stop_at: int | None = None
) -> tuple[int, list[tuple[float, int, int]]]:
    """Runs a command to its end, or interrupts it when `done()` is `stop_at`.

    Returns its status, and regular samples of the seconds since the start, the progress, and MiB of all processes.
    """
    curve = []
    start = time.monotonic()
    process = subprocess.Popen(command)
    while process.poll() is None:
        time.sleep(every)
        count = done()
        if used := memory(process.pid):
            curve.append((round(time.monotonic() - start, 1), count, round(used)))
        if stop_at is not None and count >= stop_at:
            process.send_signal(signal.SIGINT)
            stop_at = None
    return process.returncode, curve


def translate(args: argparse.Namespace) -> dict[str, Any]:
    """The curves before and after an interruption in the middle."""
    lines = [" ".join(line.split()[: args.words]) for line in multi30k("test", args.mirror)["en"]]
    assert WINDOW % len(lines) == 0
    with tempfile.TemporaryDirectory() as temporary:
        source, output = Path(temporary, "source"), Path(temporary, "output")
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in itertools.islice(itertools.cycle(lines), args.lines))
        journal = Path(f"{output}.partial.journal")

        def done() -> int:
            if not journal.exists():
                return 0
            last = journal.read_text().splitlines()[-1]
            return json.loads(last).get("lines", 0) if last.endswith("}") else 0

        command = [*RSKIP, "translate", "--model", str(args.model), str(source), "--output", str(output), "--progress"]
        command += ["--workers", str(args.workers), "--beam", str(args.beam)]
        status, before = watch(command, done, every=args.every, stop_at=args.lines // 2)
        if status != 130:
            raise SystemExit(f"the interrupted translation ended with status {status}: expected 130")
        status, after = watch([*command, "--resume"], done, every=args.every)
        if status != 0:
            raise SystemExit(f"the resumed translation ended with status {status}")
        _check_repeats(output, args.lines)
    return {
        "command": "translate",
        "lines": args.lines,
        "words": args.words,
        "beam": args.beam,
        "workers": args.workers,
        "minutes": round((before[-1][0] + after[-1][0]) / 60, 1),
        "curve": _thinned(before),
        "resumed": _thinned(after),
    }


def _check_repeats(output: Path, count: int) -> None:
    """Checks that a line's translation equals that of the line one window earlier."""
    with output.open(encoding="utf-8") as file:
        first = list(itertools.islice(file, WINDOW))
        same = sum(line == first[number % WINDOW] for number, line in enumerate(file))
    if len(first) + same != count:
        raise SystemExit(f"{count - len(first) - same} of {count} lines differ from their first translation")


def prepare(args: argparse.Namespace) -> dict[str, Any]:
    """The curve. Progress is unknown from outside, so it is 0 until the end."""
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary, "data")
        command = [*RSKIP, "prepare", "numbers-en-de", "--pairs", str(args.pairs), "--output", str(output)]
        status, curve = watch([*command, "--workers", str(args.workers)], lambda: 0, every=args.every)
        if status != 0:
            raise SystemExit(f"rskip prepare ended with status {status}")
    return {
        "command": "prepare",
        "pairs": args.pairs,
        "workers": args.workers,
        "minutes": round(curve[-1][0] / 60, 1),
        "curve": _thinned(curve),
    }


def large(args: argparse.Namespace) -> dict[str, Any]:
    """The peak for each precision, with and without pages of the mapped file."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        parameters = write_large_model(folder, layers=args.layers, dtype=getattr(torch, args.dtype))
        text = Path(temporary, "text")
        text.write_text(" ".join(f"w{number}" for number in range(0, 200_000, 10_000)) + "\n")
        command = [*RSKIP, "translate", "--model", str(folder), "--text", "tokens", str(text), "--output"]
        command += [str(Path(temporary, "output")), "--max-len-a", "0", "--max-len-b", "20", "--threads", "1"]
        rows = []
        for precision in args.precisions:
            start, peaks = time.monotonic(), {"Pss": 0.0, "Anonymous": 0.0}
            process = subprocess.Popen([*command, "--precision", precision])
            while process.poll() is None:
                time.sleep(0.1)
                peaks = {kind: max(peak, memory(process.pid, kind)) for kind, peak in peaks.items()}
            if process.returncode != 0:
                raise SystemExit(f"rskip translate ended with status {process.returncode}")
            seconds = round(time.monotonic() - start, 1)
            mib = {"peak_mib": round(peaks["Pss"]), "peak_anonymous_mib": round(peaks["Anonymous"])}
            rows.append({"precision": precision, "seconds": seconds, **mib})
        size = round((folder / "model.safetensors").stat().st_size / 2**20)
    return {"command": "large", "parameters": parameters, "dtype": args.dtype, "file_mib": size, "rows": rows}


def write_large_model(folder: Path, *, layers: int, dtype: torch.dtype) -> int:
    """A random model as wide as NLLB-1.3B, with this number of layers per stack. Returns the number of parameters."""
    sizes = {"embed_dim": 1024, "ffn_embed_dim": 8192, "attention_heads": 16, "layers": layers}
    sides: dict[str, Any] = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    model = {**sides, "share_all_embeddings": True, "connection": "prenorm+ln"}
    connections: dict[str, Any] = {f"{side}_connection": "prenorm+ln" for side in ("encoder", "decoder")}
    dictionary = Dictionary(f"w{index}" for index in range(256_202))
    with torch.device("meta"):
        config = TransformerConfig(len(dictionary), len(dictionary), **sides, **connections, share_all_embeddings=True)
        shapes = {name: tensor.shape for name, tensor in Transformer(config).state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    tied = ("decoder.embed_tokens.weight", "decoder.output_projection.weight")
    weights = {name: torch.empty(shape, dtype=dtype) for name, shape in shapes.items() if name not in tied}
    for name, tensor in weights.items():
        if "norm" in name:
            tensor.fill_(float(name.endswith("weight")))
        else:
            tensor.normal_(std=0.02, generator=generator)
    weights.update(dict.fromkeys(tied, weights["encoder.embed_tokens.weight"]))
    languages = {"source_lang": "a", "target_lang": "b"}
    write_model(
        folder, Checkpoint(model=weights, config={"task": "translation", "arch": "random", **languages, "model": model})
    )
    for language in languages.values():
        dictionary.save(folder / f"dict.{language}.txt")
    return sum(tensor.numel() for name, tensor in weights.items() if name not in tied)


def _thinned(curve: list[tuple[float, int, int]], points: int = 60) -> list[dict[str, float]]:
    """At most this number of points, each with the peak memory since the previous one."""
    step = -(-len(curve) // points)
    groups = [curve[start : start + step] for start in range(0, len(curve), step)]
    return [
        {"seconds": group[-1][0], "done": group[-1][1], "mib": max(mib for *_, mib in group)} for group in groups
    ]


def main() -> None:
    parser = benchmark_parser(__doc__, "memory_over_size")
    parser.add_argument("command", nargs="?", choices=("translate", "prepare", "large"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=4, help="number of words per line to translate")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--mirror", help="folder or address with Multi30k's files (default: its publisher)")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--precisions", nargs="+", default=["int8", "bfloat16"])
    parser.add_argument("--layers", type=int, default=24, help="layers per stack of the large model")
    parser.add_argument("--dtype", default="bfloat16", help="type of the large model's weights")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell inherit that it is ignored

    if args.command == "large":
        values = large(args)
        print("\n| precision | seconds | peak MiB | without mapped files |\n|---|---|---|---|")
        for row in values["rows"]:
            print("| {precision} | {seconds} | {peak_mib:,} | {peak_anonymous_mib:,} |".format(**row))
        append_record(args.output, "memory_over_size", values)
        return
    commands = {"translate": translate, "prepare": prepare}
    for command in commands if args.command is None else [args.command]:
        values = commands[command](args)
        print(f"\n{command}\n\n| seconds | done | MiB |\n|---|---|---|")
        for row in [*values["curve"], *values.get("resumed", [])]:
            print(f"| {row['seconds']:,} | {row['done']:,} | {row['mib']:,} |")
        append_record(args.output, "memory_over_size", values)


if __name__ == "__main__":
    main()
