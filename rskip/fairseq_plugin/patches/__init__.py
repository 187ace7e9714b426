"""Patches of fairseq that need rskip, one per file. fairseq_compat installs and reports them."""

from __future__ import annotations

from fairseq_compat.patch import Patch
from rskip.fairseq_plugin.patches.dictionaries import DICTIONARIES
from rskip.fairseq_plugin.patches.half_precision_adam import HALF_PRECISION_ADAM
from rskip.fairseq_plugin.patches.out_of_memory import OUT_OF_MEMORY
from rskip.fairseq_plugin.patches.profiling_pass import PROFILING_PASS
from rskip.fairseq_plugin.patches.resumed_models import RESUMED_MODELS
from rskip.fairseq_plugin.patches.run_lock import RUN_LOCK

PATCHES: tuple[Patch, ...] = (
    DICTIONARIES, HALF_PRECISION_ADAM, OUT_OF_MEMORY, PROFILING_PASS, RESUMED_MODELS, RUN_LOCK
)  # fmt: skip
