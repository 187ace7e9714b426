"""Seconds from `import torch` to a loaded model, and to its first answer, for every model in the registry.

Each round is a separate process with an empty cache, and uses the checkout's weights. The time starts after PyTorch's
import. It includes importing rskip, reading the registry, comparing checksums, building the model, and the first
sentence or image. Prints a table and appends one JSON line to study/results/benchmarks/zoo_load.jsonl.

    python benchmarks/zoo_load.py [--rounds 5]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max

from rskip.zoo.registry import read_registry

PROGRAM = """
import sys, time
import torch
start = time.perf_counter()
import rskip
model = rskip.load(sys.argv[1])
loaded = time.perf_counter()
if sys.argv[2] == "translation":
    answer = model("Two dogs are playing in the snow.")
else:
    image = torch.zeros(3, 32, 32, dtype=torch.uint8)
    answer = model.classes[model(model.transforms()(image)[None]).argmax().item()]
assert answer
print(loaded - start, time.perf_counter() - start)
"""


def measure(name: str, task: str) -> tuple[float, float]:
    """Seconds to the loaded model and to its first answer."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-c", PROGRAM, name, task]
        process = subprocess.run(
            command, env={**os.environ, "TORCH_HOME": cache}, stdout=subprocess.PIPE, text=True, check=True
        )
    loaded, answered = map(float, process.stdout.split())
    return loaded, answered


def main() -> None:
    parser = benchmark_parser(__doc__, "zoo_load")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    models = read_registry()
    times = [{name: measure(name, entry.task) for name, entry in models.items()} for _ in range(args.rounds)]
    found = {}
    print("| model | loaded, s (min to max) | first answer, s (min to max) |\n|---|---|---|")
    for name in models:
        columns = list(zip(*(each[name] for each in times), strict=True))
        summaries = [median_min_max(seconds) for seconds in columns]
        found[name] = dict(zip(("loaded", "answered"), summaries, strict=True))
        print(f"| `{name}` | {' | '.join('{:.2f} ({:.2f} to {:.2f})'.format(*each) for each in summaries)} |")
    append_record(args.output, "zoo_load", {"rounds": args.rounds, "seconds": found})
    print(f"\n{json.dumps(found)}")


if __name__ == "__main__":
    main()
