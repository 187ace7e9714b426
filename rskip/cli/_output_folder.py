"""The folder that a command writes its result into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rskip.files.whole import whole_folder


@contextmanager
def output_folder(output: Path, *, replace: bool, contents: Sequence[str]) -> Iterator[Path]:
    """Gives an empty folder that becomes `output` if the block ends well, or is removed.

    :param replace: an `output` that is there already is replaced, if the same command can have written it.
    :param contents: patterns of the names that the command writes.
    :raises FileExistsError: `output` is there and is not to be replaced.
    """
    output = output.absolute()
    if output.exists():
        if not output.is_dir():
            raise FileExistsError(f"{output} is a file: give another --output, a folder")
        if not replace:
            raise FileExistsError(f"{output} is there already: give another --output, or --force to replace it")
        for path in sorted(output.iterdir()):
            if not any(path.match(pattern) for pattern in contents):
                raise FileExistsError(f"{output} holds {path.name}, which would be lost: give another --output")
    with whole_folder(output) as building:
        yield building
