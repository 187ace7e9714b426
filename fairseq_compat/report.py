"""`python -m fairseq_compat.report`: one JSON object, whether each mend is in force in a fresh process.

{"hook": true, "fairseq": "0.12.2", "mends": {"bf16": true, ...}}. "hook" tells whether the start-up hook ran
in this process by itself; "fairseq" is null, and "error" says why, where fairseq can't be imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from fairseq_compat.mends import MENDS
from fairseq_compat.startup import FairseqFinder


def report() -> dict[str, Any]:
    """Imports fairseq and asks every mend; an exception in a mend's question counts as no."""
    answer: dict[str, Any] = {"hook": FairseqFinder in sys.meta_path, "fairseq": None, "mends": {}}
    try:
        import fairseq
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
        return answer
    answer["fairseq"] = fairseq.__version__
    for mend in MENDS:
        try:
            answer["mends"][mend.name] = mend.active()
        except Exception:
            answer["mends"][mend.name] = False
    return answer


if __name__ == "__main__":
    print(json.dumps(report()))
