"""Latency of single sentences in milliseconds."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import Any

from measuring.rounds import report, take_turns

from decoding.processes import SystemProcess
from decoding.speed import CT2
from decoding.systems import Tokens
from decoding.workloads import RECURSIVE, STOCK, Workload
from rskip.text import Tokenizer, TokenText


def build_onnx_systems(workload: Workload, folder: Path, threads: int) -> dict[str, SystemProcess]:
    """Our models as ONNX graphs for single sentences, by name. The graphs are written to `folder`."""
    from rskip.translation.onnx_model import write_onnx

    systems = {}
    for connection in (STOCK, RECURSIVE):
        for precision in ("float32", "int8"):
            model, place = workload.models[connection](), folder / f"{connection}-{precision}"
            place.mkdir(parents=True)
            write_onnx(
                model, place, Tokenizer(TokenText("a", "b"), workload.source, workload.target), precision=precision
            )  # fmt: skip
            systems[f"ours {connection} ONNX {precision}"] = SystemProcess(
                f"ONNX {precision}", None, workload.source, workload.target, workload.search,
                folder=place, threads=threads,
            )  # fmt: skip
    return systems


def measure_latency(workload: Workload, systems: dict[str, SystemProcess], rounds: int) -> dict[str, Any]:
    """The workload's rows. Each round has different sentences, which are the same for all systems."""
    milliseconds: dict[str, list[float]] = {name: [] for name in systems}
    for system in systems.values():
        system.translate(workload.sentences[:1], 1)
    count = workload.latency_sentences_per_round
    for number in range(rounds):
        block = [workload.sentences[(number * count + index) % len(workload.sentences)] for index in range(count)]
        calls = {
            name: partial(one_by_one, system, block, milliseconds[name]) for name, system in systems.items()
        }
        take_turns(calls, 1)
        report(f"{workload.name}: latency, round {number + 1} of {rounds}")
    rows = [
        {
            "system": name,
            "median_ms": round(statistics.median(each), 1),
            "p95_ms": round(percentile(each, 95), 1),
            "ratio_to_ct2_float32": time_ratio(each, milliseconds[CT2]),
        }
        for name, each in milliseconds.items()
    ]
    return {
        "workload": workload.name,
        "sentences": rounds * count,
        "beam": workload.search.beam,
        "rows": rows,
    }


def time_ratio(milliseconds: list[float], others: list[float]) -> float:
    """The median over sentences of the ratio of times."""
    return round(statistics.median(one / other for one, other in zip(milliseconds, others, strict=True)), 2)


def one_by_one(system: SystemProcess, sentences: list[Tokens], milliseconds: list[float]) -> float:
    """Translates each sentence separately, and appends its time. Returns the total seconds."""
    taken = []
    for sentence in sentences:
        system.translate([sentence], 1)
        taken.append(system.seconds)
    milliseconds.extend(1000 * each for each in taken)
    return sum(taken)


def percentile(values: list[float], per_cent: int) -> float:
    """The smallest value that this percentage of the values does not exceed."""
    return sorted(values)[-(-per_cent * len(values) // 100) - 1]


def print_latency(result: dict[str, Any]) -> None:
    """The workload's table."""
    print(f"\n{result['workload']}: one sentence at a time, {result['sentences']} sentences, beam {result['beam']}\n")
    print("| system | median, ms | 95 % within, ms | time × CTranslate2 float32 |\n|---|---|---|---|")
    for row in result["rows"]:
        print(f"| {row['system']} | {row['median_ms']} | {row['p95_ms']} | {row['ratio_to_ct2_float32']:.2f} |")
