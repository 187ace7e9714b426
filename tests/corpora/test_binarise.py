"""fairseq-preprocess as a subprocess."""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rskip.corpora.binarise import binarise

COUNTS = {"train": 3, "valid": 2, "test": 1, "test1": 4}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a fairseq-preprocess of the test's own, beside what then counts as the running Python."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    return tmp_path / "bin/fairseq-preprocess"


def run(tmp_path: Path) -> None:
    binarise(
        tmp_path,
        tmp_path / "out",
        languages=("en", "de"),
        sentences=COUNTS,
        dictionary=tmp_path / "dict.txt",
        workers=2,
    )


def script(command: Path, text: str) -> None:
    command.write_text(f"#!/bin/sh\n{text}\n")
    command.chmod(0o755)


def test_arguments_and_the_last_words_of_a_failure(command: Path, tmp_path: Path) -> None:
    script(command, f"echo \"$@\" > {tmp_path}/arguments; printf 'Traceback\\n  File\\nKeyError: 7\\n\\n' >&2; exit 3")
    with pytest.raises(OSError, match=r"^fairseq-preprocess ended with status 3: KeyError: 7$"):
        run(tmp_path)
    assert (tmp_path / "arguments").read_text() == (
        f"--source-lang en --target-lang de --trainpref {tmp_path}/train --validpref {tmp_path}/valid "
        f"--testpref {tmp_path}/test,{tmp_path}/test1 --destdir {tmp_path}/out --joined-dictionary "
        f"--srcdict {tmp_path}/dict.txt --workers 3\n"
    )


def index(count: int) -> bytes:
    return b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, 8, count)


def test_sentences_that_get_lost_are_noticed(command: Path, tmp_path: Path) -> None:
    script(command, "exit 0")
    (tmp_path / "out").mkdir()
    for split, count in COUNTS.items():
        for language in ("en", "de"):
            (tmp_path / f"out/{split}.en-de.{language}.idx").write_bytes(index(count))
    (tmp_path / "out/preprocess.log").write_text("log")
    run(tmp_path)
    assert not (tmp_path / "out/preprocess.log").exists()
    (tmp_path / "out/valid.en-de.de.idx").write_bytes(index(1))
    with pytest.raises(OSError, match=r"fairseq-preprocess wrote 1 of 2 sentences: valid\.en-de\.de\.idx"):
        run(tmp_path)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background job ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interruption_ends_its_workers_too(command: Path, tmp_path: Path, interruptible: None) -> None:
    """tests/machine/test_workers.py has the workers of the other stages."""
    script(command, f"sleep 60 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/worker; wait")

    def interrupt() -> None:
        while not (tmp_path / "worker").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    worker, until = Path("/proc", (tmp_path / "worker").read_text().strip()), time.monotonic() + 20
    while worker.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not worker.exists()
