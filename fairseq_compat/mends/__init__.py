"""One file a mend; MENDS holds them all, in the order in which those of one module are applied."""

from __future__ import annotations

import os

from fairseq_compat.mend import Mend
from fairseq_compat.mends.bf16 import BF16
from fairseq_compat.mends.cpu_ddp import CPU_DDP
from fairseq_compat.mends.cpu_spawn import CPU_SPAWN
from fairseq_compat.mends.dataclass_defaults import DATACLASS_DEFAULTS
from fairseq_compat.mends.encoder_fast_path import ENCODER_FAST_PATH
from fairseq_compat.mends.known_warnings import KNOWN_WARNINGS
from fairseq_compat.mends.numpy_aliases import NUMPY_ALIASES
from fairseq_compat.mends.safe_globals import SAFE_GLOBALS
from fairseq_compat.mends.user_dir import USER_DIR

MENDS: tuple[Mend, ...] = (
    DATACLASS_DEFAULTS,
    SAFE_GLOBALS,
    ENCODER_FAST_PATH,
    BF16,
    CPU_DDP,
    CPU_SPAWN,
    USER_DIR,
    NUMPY_ALIASES,
    KNOWN_WARNINGS,
)


def enabled_mends() -> list[Mend]:
    """The mends that FAIRSEQ_COMPAT_DISABLE leaves on."""
    disabled = {name.strip() for name in os.environ.get("FAIRSEQ_COMPAT_DISABLE", "").split(",")}
    return [mend for mend in MENDS if not disabled & {mend.name, "all"}]
