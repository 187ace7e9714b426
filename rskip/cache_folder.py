"""Where downloads are kept."""

from __future__ import annotations

import os
from pathlib import Path

from rskip.expanded_path import expanded_path


def cache_folder() -> Path:
    """$RSKIP_DATA, or ~/.cache/rskip/data.

    Several processes and users may share it. Who only reads it needs nothing more; users who all fetch into it must be
    able to write to each other's files (a common group, umask 002).
    """
    return expanded_path(os.environ.get("RSKIP_DATA") or "~/.cache/rskip/data", "RSKIP_DATA")
