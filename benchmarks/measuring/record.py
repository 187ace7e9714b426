"""The line that a benchmark leaves in results/."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rskip.machine.environment import describe_environment


def append_record(path: Path, benchmark: str, values: dict[str, Any]) -> dict[str, Any]:
    """Adds a JSON line with the values, the date, the versions and the machine; gives what was written."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {"benchmark": benchmark, "date": date, **values, **describe_environment()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    return record
