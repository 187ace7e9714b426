"""`python -m fairseq_compat.report [USER_DIR ...]`: one JSON object that shows which patches are active.

{"hook": true, "fairseq": "0.12.2", "patches": [{"name": "bf16", "symptom": "--bf16 asks ...", "active": true}, ...]}.
"hook" is true if the start-up hook ran in this process. If fairseq can't be imported, "fairseq" is null and "error"
gives the reason. With USER_DIR, as in `--user-dir`, the patches of that plug-in are reported too.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fairseq_compat.patch import Patch
from fairseq_compat.registry import REGISTRY, is_active
from fairseq_compat.startup import FairseqFinder


def report(*user_dirs: str) -> dict[str, Any]:
    """Imports fairseq and asks every patch whether it is active; an exception means that it isn't."""
    answer: dict[str, Any] = {"hook": FairseqFinder in sys.meta_path, "fairseq": None}
    try:
        import fairseq
        from fairseq import utils

        for user_dir in user_dirs:
            utils.import_user_module(argparse.Namespace(user_dir=user_dir))
        answer["fairseq"] = fairseq.__version__
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    answer["patches"] = [
        {"name": patch.name, "symptom": patch.symptom, "active": "error" not in answer and _is_active(patch)}
        for patch in REGISTRY
    ]
    return answer


def _is_active(patch: Patch) -> bool:
    try:
        return is_active(patch)
    except Exception:
        return False


if __name__ == "__main__":
    print(json.dumps(report(*sys.argv[1:])))
