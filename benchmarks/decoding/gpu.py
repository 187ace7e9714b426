"""Translation on a GPU: fairseq-generate and ours, in batches of one sentence and of many."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measuring.rounds import median_min_max, ratios, report, take_turns

from decoding.processes import SystemProcess
from decoding.speed import our_name
from decoding.systems import Tokens
from decoding.workloads import RECURSIVE, STOCK, Workload

BATCHES = {1: 8, 64: 256, 512: 1024}  # batch size: sentences of a round
BASELINE = "fairseq float16"
OUR_PRECISIONS = ("float32", "bfloat16")


def measure_on_gpu(
    workload: Workload, folder: Path, *, device: str, rounds: int, batches: dict[int, int]
) -> list[dict[str, Any]]:
    """The rows of every batch size. All systems alternate, each in its own process."""
    systems = build_systems(workload, folder, device)
    try:
        return [_measure(workload, systems, size, count, rounds) for size, count in batches.items()]
    finally:
        for system in systems.values():
            system.close()


def build_systems(workload: Workload, folder: Path, device: str) -> dict[str, SystemProcess]:
    """All systems, by name."""

    def build(name: str, connection: str) -> SystemProcess:
        model = workload.models[connection]()
        return SystemProcess(
            name, model, workload.source, workload.target, workload.search, folder=folder, threads=1, device=device
        )

    systems = {name: build(name, STOCK) for name in ("fairseq float32", BASELINE)}
    for connection in (STOCK, RECURSIVE):
        systems |= {our_name(connection, each): build(f"PyTorch {each}", connection) for each in OUR_PRECISIONS}
    return systems


def _measure(
    workload: Workload, systems: dict[str, SystemProcess], size: int, count: int, rounds: int
) -> dict[str, Any]:
    sentences = [workload.sentences[index % len(workload.sentences)] for index in range(count)]

    def timed(system: SystemProcess) -> float:
        system.translate(sentences, size)
        return system.seconds

    report(f"batches of {size}: warm-up")
    found: dict[str, list[Tokens]] = {name: system.translate(sentences, size) for name, system in systems.items()}
    calls: dict[str, Callable[[], float]] = {name: partial(timed, system) for name, system in systems.items()}
    times = take_turns(calls, rounds, title=f"batches of {size}")
    rows = []
    for name, system in systems.items():
        tokens = sum(len(each) + 1 for each in found[name])
        seconds = statistics.median(times[name])
        equal = [one == other for one, other in zip(found[name], found["fairseq float32"], strict=True)]
        rows.append(
            {
                "system": name,
                "seconds": round(seconds, 3),
                "ms_a_batch": round(1000 * seconds / -(-count // size), 2),
                "tokens_per_second": round(tokens / seconds),
                "ratio_to_fairseq_float16": median_min_max(ratios(times, BASELINE, name)),
                "peak_mib": system.mib,
                "target_tokens": tokens,
                "fairseqs_hypotheses": round(100 * sum(equal) / count, 1) if RECURSIVE not in name else None,
            }
        )
    return {"workload": workload.name, "batch_size": size, "sentences": count, "rows": rows}


def print_on_gpu(results: list[dict[str, Any]]) -> None:
    """One table per batch size."""
    for result in results:
        print(f"\n{result['workload']}: {result['sentences']} sentences, batches of {result['batch_size']}\n")
        print(f"| system | ms per batch | target tokens/s | × {BASELINE} (min to max) | peak, MiB |\n|{'---|' * 5}")
        for row in result["rows"]:
            ratio = "{:.2f} ({:.2f} to {:.2f})".format(*row["ratio_to_fairseq_float16"])
            tokens = f"{row['tokens_per_second']:,}"
            print(f"| {row['system']} | {row['ms_a_batch']:.2f} | {tokens} | {ratio} | {row['peak_mib']:,} |")
