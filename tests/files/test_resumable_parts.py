"""Processes that share an input, and the one output that their parts become."""

from __future__ import annotations

import random

import pytest

from rskip.files.resumable import ResumableFile, merge_parts, part_path
from rskip.files.windows import read_windows
from rskip.machine.ranks import Ranks


@pytest.fixture
def source(tmp_path):
    """A file of 100 lines; its windows of 7 are 15."""
    path = tmp_path / "input"
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    return path


def windows(source):
    return read_windows([source], lines=7, characters=10**9)


def write_part(ranks, source, output, stop=10**9):
    file = ResumableFile(part_path(output, ranks.rank, ranks.count), {}, resume=True)
    generator = random.Random(0)
    for window in file.missing(ranks.share(windows(source))):
        if window.number >= stop:
            break
        file.write(window, "".join(f"{line}\n" * generator.randint(1, 3) for line in window.lines).encode())
    file.close()


@pytest.mark.parametrize("count", [2, 4, 20])
def test_parts_become_one_output_in_the_order_of_the_input(source, tmp_path, count):
    output = tmp_path / "output"
    for rank in range(count):
        write_part(Ranks(rank, count), source, output, stop=rank + 2 * count)  # interrupted
        write_part(Ranks(rank, count), source, output)
    (tmp_path / "output.partial-merged").write_text("left of a killed process")
    merge_parts(output, count)
    lines = output.read_text().splitlines()
    assert list(dict.fromkeys(lines)) == source.read_text().splitlines()
    assert lines == sorted(lines, key=lambda line: int(line.split()[1]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input", "output"]


def test_a_missing_part_is_named_and_nothing_is_lost(source, tmp_path):
    output = tmp_path / "output"
    write_part(Ranks(0, 2), source, output)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"output\.partial-2of2 is missing"):
        merge_parts(output, 2)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
