"""Preparations that are killed and repeated."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys
from pathlib import Path
from rskip.corpora import PrepareOptions, chunks, prepare
from rskip.corpora.numbers import numbers

chunks.PAIRS_IN_CHUNK = 8
_, output, python, renames = sys.argv
sys.executable = python
left = int(renames)
for name in ("rename", "replace"):
    def renamed(*arguments, do=getattr(os, name)):
        global left
        do(*arguments)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
    setattr(os, name, renamed)
options = PrepareOptions(pairs=20, size=60, shards=2, duplicates=True, empty=True)
prepare(numbers("en", "de"), Path(output), options=options)
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def python() -> str:
    """The running Python; asked for before `stub` changes its name."""
    return sys.executable


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_bytes(
    python: str, stub: Path, tmp_path: Path, root: Path
) -> None:
    """Everything that a run leaves appears by a rename: the n-th run is killed after its n-th."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def run(output: Path, *, renames: int) -> int:
        command = [python, str(program), str(output), str(stub.with_name("python")), str(renames)]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)}, check=False).returncode

    unbroken, output = tmp_path / "out/unbroken", tmp_path / "out/numbers"
    assert run(unbroken, renames=0) == 0
    kills = 0
    while (status := run(output, renames=kills + 1)) == -signal.SIGKILL:
        kills += 1
    assert status == 0
    assert kills > 5
    assert contents(output) == contents(unbroken)
    assert {path.name for path in output.parent.iterdir()} == {"unbroken", "numbers"}


NUMBERS = ["numbers-en-de", "--pairs", "3000", "--workers", "2"]
SMALL_CHUNKS = """
import sys
from rskip.cli.main import main
from rskip.corpora import chunks

if __name__ == "__main__":
    chunks.PAIRS_IN_CHUNK = 300
    sys.exit(main(sys.argv[1:]))
"""
STAGES = [
    "reports/train-000002.json",
    "text/pipeline.json",
    "counts/train-000003.json",
    "assembled",
    "binarised/shard1.new",
]


class Command:
    """`rskip prepare numbers-en-de` with two workers and ten chunks."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("fairseq")
        self.program = folder / "rskip_in_small_chunks.py"
        self.program.write_text(SMALL_CHUNKS)

    def start(self, output: Path) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.program), "prepare", *NUMBERS, "--output", str(output)]
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
        )

    def finish(self, output: Path) -> dict[str, bytes]:
        process = self.start(output)
        _, message = process.communicate()
        assert process.returncode == 0, message
        return contents(output)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.002)


def children(process: subprocess.Popen[str]) -> list[int]:
    """Process numbers of the children; Linux."""
    return children_of(process.pid)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def besides_stages(message: str) -> list[str]:
    """The lines but those that tell of a stage's beginning."""
    return [line for line in message.splitlines() if not re.fullmatch(r"[a-z ]+: [\d,]+ of [\d,]+ pairs", line)]


def assert_gone(workers: list[int]) -> None:
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(workers) >= 2 and not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.slow
def test_killed_at_several_stages_with_two_workers(command: Command, tmp_path: Path) -> None:
    expected = command.finish(tmp_path / "unbroken")
    output = tmp_path / "out/numbers"
    for stage in STAGES:
        process = command.start(output)
        wait_for(output.with_name("numbers.partial") / stage, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not output.exists(), stage
        assert output.with_name("numbers.partial").exists(), stage
    assert command.finish(output) == expected
    assert [path.name for path in output.parent.iterdir()] == ["numbers"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "told"),
    [
        (signal.SIGINT, 130, "rskip prepare: interrupted"),
        (signal.SIGTERM, 143, "rskip: terminated; the same command goes on where it stopped"),
    ],
)
def test_stopped_it_ends_at_once_with_its_workers_in_one_line(
    number: signal.Signals, status: int, told: str, command: Command, tmp_path: Path
) -> None:
    output = tmp_path / "numbers"
    process = command.start(output)
    wait_for(output.with_name("numbers.partial") / STAGES[0], process)
    workers = children(process)
    process.send_signal(number)
    _, message = process.communicate(timeout=20)
    assert process.returncode == status
    assert besides_stages(message) == [told]
    assert_gone(workers)
    assert not output.exists()
    assert len(command.finish(output)) > 10


@pytest.mark.slow
def test_terminated_while_fairseq_binarises_it_leaves_no_process(command: Command, tmp_path: Path) -> None:
    output = tmp_path / "numbers"
    process = command.start(output)
    wait_for(output.with_name("numbers.partial") / STAGES[-1], process)
    of_fairseq = children(process)
    while not (workers := [pid for child in of_fairseq for pid in children_of(child)]) and process.poll() is None:
        time.sleep(0.002)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert_gone([*of_fairseq, *workers])
    assert len(command.finish(output)) > 10


@pytest.mark.slow
def test_worker_that_is_killed_is_one_line_and_can_be_repeated(command: Command, tmp_path: Path) -> None:
    output = tmp_path / "numbers"
    process = command.start(output)
    wait_for(output.with_name("numbers.partial") / STAGES[0], process)
    os.kill(children(process)[-1], signal.SIGKILL)
    _, message = process.communicate(timeout=20)
    assert process.returncode == 2
    (line,) = besides_stages(message)
    assert line.startswith("rskip prepare: error: a worker process was ended, perhaps for want of memory: use fewer")
    assert len(command.finish(output)) > 10


@pytest.mark.slow
def test_workers_end_with_a_killed_process(command: Command, tmp_path: Path) -> None:
    process = command.start(tmp_path / "numbers")
    wait_for(tmp_path / "numbers.partial" / STAGES[0], process)
    workers = children(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert_gone(workers)
