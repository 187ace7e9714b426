"""Locks of outputs, which end with the last process that holds them."""

import os
import threading
from pathlib import Path

import pytest

from rskip.files.lock import Locked, one_at_a_time


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
    expected = f"waiting for another process ({os.getpid()}), which is making {tmp_path / 'out'}\n"
    assert capsys.readouterr().err == expected
    assert list(tmp_path.iterdir()) == []


def test_of_many_that_wait_one_at_a_time_goes_on(tmp_path: Path) -> None:
    """Though each removes the file that the others wait for."""
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with one_at_a_time(tmp_path / "out"):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and list(tmp_path.iterdir()) == []


def test_who_is_within_may_enter_again_and_stays_within_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with one_at_a_time(tmp_path / "out"):
        with one_at_a_time(tmp_path / "link" / "out"):
            pass
        message = rf"out is locked by another process \({os.getpid()}\)"
        with pytest.raises(Locked, match=message), one_at_a_time(tmp_path / "out", wait=False):
            pass
    with one_at_a_time(tmp_path / "out", wait=False):
        pass
