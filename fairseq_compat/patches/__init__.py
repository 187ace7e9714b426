"""The patches, one per file. PATCHES lists them in the order in which the patches of one module are applied."""

from __future__ import annotations

from fairseq_compat.patch import Patch
from fairseq_compat.patches.alignments import ALIGNMENTS
from fairseq_compat.patches.bf16 import BF16
from fairseq_compat.patches.bitarray_rindex import BITARRAY_RINDEX
from fairseq_compat.patches.broadcast_object import BROADCAST_OBJECT
from fairseq_compat.patches.checkpoint_paths import CHECKPOINT_PATHS
from fairseq_compat.patches.cpu_ddp import CPU_DDP
from fairseq_compat.patches.cpu_spawn import CPU_SPAWN
from fairseq_compat.patches.cut_checkpoints import CUT_CHECKPOINTS
from fairseq_compat.patches.dataclass_defaults import DATACLASS_DEFAULTS
from fairseq_compat.patches.empty_data import EMPTY_DATA
from fairseq_compat.patches.encoder_fast_path import ENCODER_FAST_PATH
from fairseq_compat.patches.finished_training import FINISHED_TRAINING
from fairseq_compat.patches.fp16_on_cpu import FP16_ON_CPU
from fairseq_compat.patches.index_offsets import INDEX_OFFSETS
from fairseq_compat.patches.known_warnings import KNOWN_WARNINGS
from fairseq_compat.patches.libnat import LIBNAT
from fairseq_compat.patches.line_ends import LINE_ENDS
from fairseq_compat.patches.loading_thread import LOADING_THREAD
from fairseq_compat.patches.nan_detector import NAN_DETECTOR
from fairseq_compat.patches.ngram_repeats import NGRAM_REPEATS
from fairseq_compat.patches.numpy_aliases import NUMPY_ALIASES
from fairseq_compat.patches.one_line_errors import ONE_LINE_ERRORS
from fairseq_compat.patches.patience import PATIENCE
from fairseq_compat.patches.safe_globals import SAFE_GLOBALS
from fairseq_compat.patches.training_time import TRAINING_TIME
from fairseq_compat.patches.unequal_sides import UNEQUAL_SIDES
from fairseq_compat.patches.unknown_models import UNKNOWN_MODELS
from fairseq_compat.patches.unknown_settings import UNKNOWN_SETTINGS
from fairseq_compat.patches.user_dir import USER_DIR
from fairseq_compat.patches.wrong_flags import WRONG_FLAGS

PATCHES: tuple[Patch, ...] = (
    DATACLASS_DEFAULTS,
    SAFE_GLOBALS,
    ENCODER_FAST_PATH,
    BF16,
    CPU_DDP,
    CPU_SPAWN,
    BROADCAST_OBJECT,
    USER_DIR,
    NAN_DETECTOR,
    NGRAM_REPEATS,
    NUMPY_ALIASES,
    INDEX_OFFSETS,
    LINE_ENDS,
    UNEQUAL_SIDES,
    BITARRAY_RINDEX,
    LIBNAT,
    ONE_LINE_ERRORS,
    UNKNOWN_MODELS,
    UNKNOWN_SETTINGS,
    CHECKPOINT_PATHS,
    CUT_CHECKPOINTS,
    PATIENCE,
    FINISHED_TRAINING,
    TRAINING_TIME,
    EMPTY_DATA,
    FP16_ON_CPU,
    ALIGNMENTS,
    WRONG_FLAGS,
    KNOWN_WARNINGS,
    LOADING_THREAD,
)
