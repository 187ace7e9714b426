"""Locks that end with the last process that holds them."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rskip.files.lock import one_at_a_time


def test_the_second_waits_for_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = []
    inside = threading.Event()

    def second() -> None:
        inside.wait()
        with one_at_a_time(tmp_path / "out"):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with one_at_a_time(tmp_path / "out"), one_at_a_time(tmp_path / "other"):
        inside.set()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert capsys.readouterr().err == f"waiting for another process that is making {tmp_path / 'out'}\n"
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_started_is_waited_for(tmp_path: Path) -> None:
    """A process locks, starts a child that ends when told to, and is killed: the child holds the lock."""
    program = f"""
import os, signal, subprocess
from pathlib import Path
from rskip.files.lock import one_at_a_time
with one_at_a_time(Path({str(tmp_path / "out")!r})):
    child = "while [ ! -e {tmp_path}/end ]; do sleep 0.01; done; touch {tmp_path}/ended"
    subprocess.Popen(["sh", "-c", child], close_fds=False)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    threading.Timer(0.2, (tmp_path / "end").touch).start()
    with one_at_a_time(tmp_path / "out"):
        assert (tmp_path / "ended").exists()
