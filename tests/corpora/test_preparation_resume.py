"""`rskip prepare` with two workers, interrupted in every way and repeated."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.corpora import splits
from tests.corpora.conftest import contents

ARGUMENTS = ["prepare", "numbers-en-de", "--pairs", "1500", "--bpe-size", "60", "--workers", "2"]
PROGRAM = """
import os, sys, time
from rskip.cli.main import main
from rskip.corpora import numbers, preparation, splits
from rskip.corpora.stages import Tokenise

tokenise = Tokenise.__call__

def tokenise_and_wait(self, task):
    if str(task[1]) == os.environ.get("WAIT_AT"):  # or all workers may end before the signal
        open(self.setting.work / f"at{task[1]}", "w")
        time.sleep(60)
    return tokenise(self, task)

Tokenise.__call__ = tokenise_and_wait

if __name__ == "__main__":
    splits.PAIRS_IN_BLOCK, numbers.VALID_PAIRS, numbers.TEST_PAIRS = 150, 20, 20
    preparation.find_fairseq_preprocess = preparation.binarise.__globals__["find_fairseq_preprocess"] = (
        lambda: sys.argv[1]
    )
    sys.exit(main(sys.argv[2:]))
"""


def children_of(pid: int) -> list[int]:
    """Process numbers of the children; Linux."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Command:
    """The command in a process of its own."""

    def __init__(self, program: Path, fairseq: Path, output: Path, *, until: str = "") -> None:
        """:param until: waits for this file of the work folder."""
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(fairseq), *ARGUMENTS, "--output", str(output)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "WAIT_AT": until.removeprefix("at")},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
        )
        path = output.with_name(f"{output.name}.partial") / until
        while until and not path.exists() and self.process.poll() is None:
            time.sleep(0.002)
        self.children = children_of(self.process.pid) if until else []

    def end(self) -> tuple[int, list[str]]:
        """Its status, and what it says besides the stages, when it and all its children are gone."""
        _, message = self.process.communicate(timeout=30)
        end = time.monotonic() + 20
        while (left := [pid for pid in self.children if Path(f"/proc/{pid}").exists()]) and time.monotonic() < end:
            time.sleep(0.01)
        assert not left
        stage = re.compile(r"[a-z ]+: [\d,]+ (of [\d,]+ )?pairs|binarise: .*")
        return self.process.returncode, [line for line in message.splitlines() if not stage.fullmatch(line)]


@pytest.mark.slow
def test_ended_in_every_way_it_ends_with_the_same_bytes(
    stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, output = tmp_path / "program.py", tmp_path / "out/numbers"
    program.write_text(PROGRAM)
    unbroken = tmp_path / "unbroken"
    with monkeypatch.context() as context:
        context.setattr(splits, "PAIRS_IN_BLOCK", 150)
        for name in ("VALID_PAIRS", "TEST_PAIRS"):
            context.setattr(f"rskip.corpora.numbers.{name}", 20)
        assert main([*ARGUMENTS[:-1], "1", "--output", str(unbroken)]) == 0
    monkeypatch.undo()  # the running Python is itself again

    command = Command(program, stub, output, until="at301")
    assert len(command.children) >= 2
    os.kill(command.children[-1], signal.SIGKILL)
    status, (line,) = command.end()
    assert status == 2
    assert line.startswith("rskip prepare: error: a worker process was killed, perhaps out of memory: use fewer")

    command = Command(program, stub, output, until="at1201")
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (130, ["rskip prepare: interrupted; repeat the command to resume"])

    whole = stub.read_text()
    stub.write_text(f"#!/bin/sh\nsleep 60 & touch {output}.partial/begun; wait\n")
    command = Command(program, stub, output, until="begun")
    command.children += [worker for child in command.children for worker in children_of(child)]
    command.process.send_signal(signal.SIGTERM)
    assert command.end() == (143, ["rskip prepare: terminated; repeat the command to resume"])
    assert len(command.children) >= 2  # fairseq-preprocess and its worker

    assert not output.exists()
    stub.write_text(whole)
    assert Command(program, stub, output).end() == (0, [])
    assert contents(output) == contents(unbroken)
    assert [path.name for path in output.parent.iterdir()] == ["numbers"]
