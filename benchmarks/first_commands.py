"""Times README's first commands in a fresh clone and shows what they print last: `make setup`, `demo` and `test`.

Clones the last commit into a temporary folder, so it needs the packages' registry and 10 GB. Prints a table and appends
one JSON line to study/results/benchmarks/first_commands.jsonl.

    python benchmarks/first_commands.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring.record import append_record, benchmark_parser

ROOT = Path(__file__).resolve().parent.parent


def timed(target: str, clone: Path) -> dict[str, Any]:
    """Runs `make TARGET` as a person would, outside any virtual environment."""
    kept = {"PATH", "HOME", "LANG", "RSKIP_SHARED", *(name for name in os.environ if name.startswith("PIP_"))}
    environment = {name: value for name, value in os.environ.items() if name in kept}
    environment["PATH"] = os.pathsep.join(each for each in environment["PATH"].split(os.pathsep) if ".venv" not in each)
    start = time.perf_counter()
    done = subprocess.run(["make", target], cwd=clone, env=environment, capture_output=True, text=True)
    seconds = round(time.perf_counter() - start)
    if done.returncode:
        sys.exit(f"make {target} ended with status {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    last = [line for line in done.stdout.replace(f"{clone}/", "").splitlines() if line.strip()][-4:]
    return {"target": target, "seconds": seconds, "last_lines": last}


def main() -> None:
    parser = benchmark_parser(__doc__, "first_commands")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT.parent, prefix="first-") as folder:
        clone = Path(folder, "rskip")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        rows = [timed(target, clone) for target in ("setup", "demo", "test")]
        size = subprocess.run(["du", "-sm", clone / ".venv"], check=True, capture_output=True, text=True).stdout
        rows[0]["megabytes"] = int(size.split()[0])  # of .venv
    for row in rows:
        print(f"make {row['target']}: {row['seconds']} s\n  " + "\n  ".join(row["last_lines"]))
    append_record(args.output, "first_commands", {"commands": rows})


if __name__ == "__main__":
    main()
