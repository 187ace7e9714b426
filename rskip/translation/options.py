"""Defines options of translating. The module does not import torch, since the options define command-line flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from rskip.generation.options import SearchOptions
from rskip.settings.check import Checked
from rskip.settings.kinds import Count

DEFAULT_OPTIONS = SearchOptions(beam=4, length_penalty=1.0, max_length_a=2.0, max_length_b=50)
MAX_TOKENS = 4096
LARGE = 300_000  # bytes of input from which worker processes are worth the seconds of their start
MAX_WORKERS = 8  # default maximum, since each worker needs memory
TooLong = Literal["keep", "cut", "split"]


@dataclass(frozen=True, kw_only=True)
class BatchSettings(Checked):
    """Settings of batches, and of lines with several or long sentences."""

    max_tokens: Annotated[
        Count | None, Meta(description=f"source tokens per batch; memory grows with it (default: {MAX_TOKENS})")
    ] = None
    buffer_size: Annotated[Count, Meta(description="lines in memory at a time")] = 2000
    split_sentences: Annotated[bool, Meta(description="translate each sentence of a line by itself")] = True
    too_long: Annotated[
        TooLong,
        Meta(
            description="sentences of more than max-source-positions tokens: split them into parts, cut them, or keep "
            "them whole, if the model can"
        ),
    ] = "split"
    max_source_positions: Annotated[
        Annotated[int, Meta(ge=2, le=10**12)] | None, Meta(description="see too-long (default: the model's)")
    ] = None


@dataclass(frozen=True, kw_only=True)
class CpuSettings(Checked):
    """Numbers of threads and processes that search on the CPU."""

    threads: Annotated[
        Annotated[int, Meta(ge=1, le=512)] | None, Meta(description="CPU threads (default: one per core)")
    ] = None
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=128)] | None,
        Meta(
            description="processes that share the CPU's threads; each has a copy of the model (default: for more "
            f"than {LARGE // 1000} kB in all one per thread, at most {MAX_WORKERS}; otherwise 1)"
        ),
    ] = None
