"""Peak memory of a translation, with a separate process per measurement.

    python benchmarks/decoding/memory.py '{"system": "ours float32", "batch": 64, "length": 31, "folder": "ct2"}'

It uses a random model (256 features, FFN dimension 1024, 4 heads, 3+3 layers) and beam 4; source and target have
`length` tokens. Prints one JSON object: `peak_mib` is the peak resident memory during translation, and `growth_mib` is
its increase over the memory after loading the model. "ours" and CTranslate2 run without PyTorch; "PyTorch" is our
model there, with the same kernels.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SYSTEMS = ("fairseq float32", "CTranslate2 float32", "ours float32", "PyTorch float32")
POINTS = ((1, 31), (16, 31), (64, 31), (256, 31), (16, 64), (16, 128), (16, 256))  # sentences, tokens of each
_SIZES = (256, 1024, 4, 3)


def measure_memory(folder: Path, points: Sequence[tuple[int, int]], threads: int) -> list[dict[str, Any]]:
    """Peak memory of every system at every point. `folder` is for CTranslate2's model."""
    from measuring.rounds import report

    from decoding.random_text import random_dictionary
    from decoding.speed import write_ours
    from decoding.workloads import STOCK, random_model
    from rskip.translation.ctranslate2_model import write_ctranslate2

    dictionary = random_dictionary()
    write_ctranslate2(random_model(_SIZES, STOCK), folder / "ct2", source=dictionary, target=dictionary)
    write_ours(random_model(_SIZES, STOCK), folder / "ours")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    rows = []
    for batch, length in points:
        for system in SYSTEMS:
            report(f"memory: {system}, {batch} sentences of {length} tokens")
            point = {"system": system, "batch": batch, "length": length}
            command = [sys.executable, __file__, json.dumps({**point, "folder": str(folder), "threads": threads})]
            process = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            rows.append({**point, **json.loads(process.stdout.splitlines()[-1])})
    return rows


def print_memory(rows: list[dict[str, Any]]) -> None:
    """One table with all points."""
    print("\nPeak memory, random, 256/1024/4, 3+3 layers, beam 4: MiB of the process (of them for the translation)\n")
    print(f"| sentences | tokens of each | {' | '.join(SYSTEMS)} |\n|{'---|' * (2 + len(SYSTEMS))}")
    for start in range(0, len(rows), len(SYSTEMS)):
        group = rows[start : start + len(SYSTEMS)]
        cells = " | ".join(f"{row['peak_mib']:,} ({row['growth_mib']:,})" for row in group)
        print(f"| {group[0]['batch']} | {group[0]['length']} | {cells} |")


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from decoding.random_text import random_dictionary, random_sentences
    from decoding.systems import Search, build_system

    point = json.loads(sys.argv[1])
    dictionary, model, place = random_dictionary(), None, "ours" if point["system"].startswith("ours") else "ct2"
    if place == "ct2" and not point["system"].startswith("CTranslate2"):
        from decoding.workloads import STOCK, random_model

        model = random_model(_SIZES, STOCK)
    system = build_system(
        point["system"],
        model,
        dictionary,
        dictionary,
        Search(beam=4, length=point["length"] - 1),
        folder=Path(point["folder"], place),
        threads=point["threads"],
    )
    system.translate(random_sentences(1, (2, 2)), 1)  # first use loads and builds things
    before = _restart_peak()
    found = system.translate(random_sentences(point["batch"], (point["length"],) * 2), point["batch"])
    assert all(len(tokens) >= point["length"] - 1 for tokens in found)
    peak = _peak()
    print(json.dumps({"peak_mib": round(peak), "growth_mib": round(peak - before)}))


def _restart_peak() -> float:
    """Returns free memory to the system and resets the peak. Returns the current MiB of the process."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    """The process's peak MiB since the peak was reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
