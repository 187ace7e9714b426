"""Target tokens per second on complete workloads, and a check that the systems did the same work."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measuring.rounds import median_min_max, ratios, report, take_turns

from decoding.processes import SystemProcess
from decoding.systems import Tokens
from decoding.workloads import RECURSIVE, STOCK, Workload
from rskip.cpu.linear import largest_int8_weight
from rskip.transformer import Transformer

FAIRSEQ, CT2, CT2_INT8 = "fairseq float32", "CTranslate2 float32", "CTranslate2 int8"
BASELINES = {"fairseq_float32": FAIRSEQ, "ct2_float32": CT2, "ct2_int8": CT2_INT8}
PRECISIONS = ("float32", "bfloat16", "int8") if largest_int8_weight() else ("float32", "bfloat16")
MIN_SAME = 99.0  # minimum percentage of equal hypotheses, in float32


def our_name(connection: str, precision: str) -> str:
    """The name of our row."""
    return f"ours {connection} {precision}"


def in_pytorch(precision: str) -> str:
    """The name of the row of our model in PyTorch, with the same kernels."""
    return f"ours {STOCK} {precision}, in PyTorch"


def build_systems(workload: Workload, folder: Path, threads: int) -> dict[str, SystemProcess]:
    """All systems, by name. `folder` is for their models."""
    from rskip.translation.ctranslate2_model import write_ctranslate2

    def build(name: str, place: str, connection: str | None = None) -> SystemProcess:
        model = None if connection is None else workload.models[connection]()
        dictionaries = workload.source, workload.target
        return SystemProcess(name, model, *dictionaries, workload.search, folder=folder / place, threads=threads)

    write_ctranslate2(workload.models[STOCK](), folder / "ct2", source=workload.source, target=workload.target)
    systems = {name: build(name, "ct2", STOCK) for name in BASELINES.values()}
    for connection in (STOCK, RECURSIVE):
        write_ours(workload.models[connection](), folder / connection)
        systems.update({our_name(connection, each): build(f"ours {each}", connection) for each in PRECISIONS})
    systems.update({in_pytorch(each): build(f"PyTorch {each}", STOCK, STOCK) for each in ("float32", PRECISIONS[-1])})
    return systems


def write_ours(model: Transformer, folder: Path) -> None:
    """Writes a model folder without dictionaries."""
    from rskip.checkpoint import Checkpoint, write_model

    settings = {name: value for name, value in model.config.to_dict().items() if "vocabulary" not in name}
    about = {"task": "translation", "arch": "benchmark", "source_lang": "a", "target_lang": "b", "model": settings}
    write_model(folder, Checkpoint(model=model.state_dict(), config=about))


def measure_speed(workload: Workload, systems: dict[str, SystemProcess], rounds: int) -> dict[str, Any]:
    """The workload's rows."""

    def translate(system: SystemProcess) -> list[Tokens]:
        return system.translate(workload.sentences, workload.batch_size)

    def timed(system: SystemProcess) -> float:
        translate(system)
        return system.seconds

    report(f"{workload.name}: warm-up")
    found = {name: translate(system) for name, system in systems.items()}
    same = check_same_work(workload, found)
    calls: dict[str, Callable[[], float]] = {name: partial(timed, system) for name, system in systems.items()}
    times = take_turns(calls, rounds, title=workload.name)
    rows = []
    for name, hypotheses in found.items():
        tokens = sum(len(each) + 1 for each in hypotheses)
        rows.append(
            {
                "system": name,
                "seconds": round(statistics.median(times[name]), 3),
                "target_tokens": tokens,
                "tokens_per_second": round(tokens / statistics.median(times[name])),
                **{f"ratio_to_{key}": median_min_max(ratios(times, each, name)) for key, each in BASELINES.items()},
                "same_hypotheses": same[name],
                "bleu": workload.bleu(hypotheses) if workload.bleu else None,
            }
        )
    return {
        "workload": workload.name,
        "sentences": len(workload.sentences),
        "beam": workload.search.beam,
        "batch_size": workload.batch_size,
        "steps": workload.search.length and workload.search.length + 1,
        "rows": rows,
    }


def check_same_work(workload: Workload, found: dict[str, list[Tokens]]) -> dict[str, float]:
    """The percentage of hypotheses that equal the reference's: fairseq's, or for the other weights our float32's.

    Raises SystemExit if a system did different work.
    """
    same = {}
    for name, hypotheses in found.items():
        reference = our_name(RECURSIVE, "float32") if RECURSIVE in name else FAIRSEQ
        equal = [one == other for one, other in zip(hypotheses, found[reference], strict=True)]
        same[name] = round(100 * sum(equal) / len(equal), 1)
        length = workload.search.length
        if length is not None and any(len(each) != length for each in hypotheses):
            raise SystemExit(f"{workload.name}: {name} returned targets whose length is not {length}")
        if workload.bleu is not None and name.endswith("float32") and same[name] < MIN_SAME:
            raise SystemExit(f"{workload.name}: only {same[name]} % of {name}'s hypotheses are {reference}'s")
    return same


def print_speed(result: dict[str, Any]) -> None:
    """The workload's table."""
    print(
        f"\n{result['workload']}: {result['sentences']} sentences, beam {result['beam']}, "
        f"batches of {result['batch_size']}\n"
    )
    ratio_columns = " | ".join(f"× {name} (min to max)" for name in BASELINES.values())
    print(f"| system | seconds | target tokens/s | {ratio_columns} | same hypotheses | BLEU |\n|{'---|' * 8}")
    for row in result["rows"]:
        cells = ["{:.2f} ({:.2f} to {:.2f})".format(*row[f"ratio_to_{key}"]) for key in BASELINES]
        cells += [f"{row['same_hypotheses']} %", "–" if row["bleu"] is None else f"{row['bleu']:.2f}"]
        print(f"| {row['system']} | {row['seconds']:.2f} | {row['tokens_per_second']:,} | {' | '.join(cells)} |")
