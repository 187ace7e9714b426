"""The folder of a run's published weights: replaced when the new one is whole, one seed of a run at a time."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rskip.checksum import sha256_file
from rskip.experiments.record import Record, read_records

MAX_BYTES = 20_000_000


@contextmanager
def published_folder(run_name: str) -> Iterator[Path]:
    """Gives a folder to fill, which becomes `checkpoints/<run name>/` when the block ends well."""
    target = Path("checkpoints", run_name)
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        building = Path(temporary, target.name)
        building.mkdir()
        yield building
        if target.exists():
            target.rename(Path(temporary, "before"))
        building.rename(target)


def check_size(weights: Path, *, most: int, dtype: str) -> None:
    """Raises ValueError where the file has more bytes than are published."""
    if (size := weights.stat().st_size) > most:
        raise ValueError(
            f"the model takes {size / 1e6:.1f} MB in {dtype}: "
            f"models of up to {most / 1e6:.0f} MB are published in checkpoints/"
        )


def check_scored_file(path: Path, record: Record) -> None:
    """Raises where the file is not the one that the record's figures are of."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is gone: remove {record.path} and run the recipe again to publish it")
    if sha256_file(path) != record.checkpoint_sha256:
        raise ValueError(f"{path} is not the file that {record.path} tells of: remove both and run again")


def write_published(record: Record) -> None:
    """Writes the record of the seed that is published now; those of the run's other seeds say no longer that they are.
    """
    for other in read_records(Path("results")):
        if other.run == record.run and other.seed != record.seed and other.published:
            dataclasses.replace(other, published=None).write(other.path)
    record.write(record.path)
