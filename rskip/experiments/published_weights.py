"""What weights have to be before they are published."""

from __future__ import annotations

from pathlib import Path

from rskip.experiments.record import Record
from rskip.files.checksum import sha256_file
from rskip.zoo.publish import MAX_BYTES


def check_size(weights: Path, *, dtype: str) -> None:
    """:raises ValueError: the file has more bytes than are published."""
    if (size := weights.stat().st_size) > MAX_BYTES:
        raise ValueError(
            f"the model takes {size / 1e6:.1f} MB in {dtype}: "
            f"models of up to {MAX_BYTES / 1e6:.0f} MB are published in checkpoints/"
        )


def check_scored_file(path: Path, record: Record) -> None:
    """:raises FileNotFoundError: no such file.
    :raises ValueError: it is not the one that the record's figures are of.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is gone: remove {record.path} and run the recipe again to publish it")
    if sha256_file(path) != record.checkpoint_sha256:
        raise ValueError(f"{path} is not the file that {record.path} tells of: remove both and run again")
