"""Kills a job at random moments until it ends by itself."""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections.abc import Callable

from rskip.machine.progress import Progress


def killed_until_done(job: Callable[[], object], *, seed: int, longest: float) -> int:
    """Runs `job` in a forked process, kills it (SIGKILL) after a random time and repeats, until it ends before that.

    :param longest: seconds that the first process lives at most; each later one may live longer.
    :returns: the number of kills.
    """

    def run() -> None:
        Progress.set_lock(threading.RLock())  # a killed process would keep the one that it shares with this process
        job()

    draw, kills = random.Random(seed), 0
    while True:
        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join(draw.uniform(0, longest * 1.15**kills))
        if process.exitcode is not None:
            assert process.exitcode == 0
            return kills
        process.kill()
        process.join()
        kills += 1
