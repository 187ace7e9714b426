"""`python -m fairseq_compat.report`: one JSON object, whether each patch is in force in a fresh process.

{"hook": true, "fairseq": "0.12.2", "patches": {"bf16": true, ...}}. "hook" tells whether the start-up hook ran
in this process by itself; "fairseq" is null, and "error" says why, where fairseq can't be imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from fairseq_compat.patches import PATCHES
from fairseq_compat.startup import FairseqFinder


def report() -> dict[str, Any]:
    """Imports fairseq and asks every patch; an exception in a patch's question counts as no."""
    answer: dict[str, Any] = {"hook": FairseqFinder in sys.meta_path, "fairseq": None, "patches": {}}
    try:
        import fairseq
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
        return answer
    answer["fairseq"] = fairseq.__version__
    for patch in PATCHES:
        try:
            answer["patches"][patch.name] = patch.active()
        except Exception:
            answer["patches"][patch.name] = False
    return answer


if __name__ == "__main__":
    print(json.dumps(report()))
