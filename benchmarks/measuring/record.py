"""A benchmark's arguments, and its result as a line of its file in study/results/benchmarks/."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from rskip.cpu import find_library
from rskip.machine.device import multiplies_bfloat16, multiplies_bfloat16_in_tiles
from rskip.machine.environment import describe_environment

RESULTS = Path(__file__).parents[2] / "study" / "results" / "benchmarks"


def benchmark_parser(description: str | None, name: str) -> argparse.ArgumentParser:
    """A parser whose --output is the file of the benchmark."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / f"{name}.jsonl")
    return parser


def append_record(path: Path, benchmark: str, values: dict[str, Any]) -> dict[str, Any]:
    """Appends a JSON line with the values, date, versions, machine and its instruction sets. Returns the record."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {"benchmark": benchmark, "date": date, **values, **describe_environment(), "instructions": instructions()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    return record


def instructions() -> dict[str, Any]:
    """The processor's instruction sets that PyTorch, oneDNN's bfloat16 products and our kernels use."""
    library = find_library().library
    return {
        "torch": torch.backends.cpu.get_cpu_capability(),
        "bfloat16": multiplies_bfloat16(),
        "amx": multiplies_bfloat16_in_tiles(),
        "kernels": None if library is None else library.instructions,
    }
