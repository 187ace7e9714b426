"""The versions that rskip was tested with: constraints.txt, in the checkout or in the installed package."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LINE = re.compile(
    r'(?P<name>[\w.-]+)==(?P<version>[\w.+]+)(; python_version (?P<sign><|>=) "(?P<python>[\d.]+)")?'
)


def constraints_file() -> Path:
    """Where constraints.txt lies."""
    package = Path(__file__).resolve().parents[1]
    for path in (package / "constraints.txt", package.parent / "constraints.txt"):
        if path.exists():
            return path
    raise FileNotFoundError(f"constraints.txt is neither in {package} nor beside it: install rskip again")


def read_tested_versions(
    path: Path | None = None, *, python: tuple[int, ...] = sys.version_info[:2]
) -> dict[str, str]:
    """Tested version of each package, for a version of Python.

    :param path: a file of lines `name==version`, some with `; python_version < "3.11"` (or >=); comments
        begin with #. Default: `constraints_file()`.
    :raises ValueError: another line.
    """
    path = path or constraints_file()
    versions = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{path}, line {number}: expected name==version, got {line!r}")
        if match["sign"]:
            older = python < tuple(map(int, match["python"].split(".")))
            if older != (match["sign"] == "<"):
                continue
        versions[match["name"]] = match["version"]
    return versions
