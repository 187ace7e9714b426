"""The queue and the thread that computes its batches."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from rskip.serving.errors import RequestError  # noqa: E402
from rskip.serving.metrics import Metrics  # noqa: E402
from rskip.serving.queue import Batcher, Job  # noqa: E402
from rskip.serving.settings import ServerSettings  # noqa: E402
from rskip.settings.errors import SettingError  # noqa: E402


@dataclass(frozen=True)
class Doubling:
    """Doubles numbers; fails for 13; waits for `gate`."""

    model: str = "doubling"
    gate: threading.Event | None = field(default=None, compare=False)
    batches: list = field(default_factory=list, compare=False)

    def compute(self, items, each_step):
        self.batches.append([*items])
        while self.gate is not None and not self.gate.is_set():
            each_step(1)
            time.sleep(0.001)
        if 13 in items:
            raise ValueError("13 can't be doubled")
        if self.model == "broken":
            raise RuntimeError("its file was truncated")
        return [2 * each for each in items]

    def produced(self, result):
        return 1


@pytest.fixture
def started():
    """`started(**settings)`: a batcher, which is closed at the end."""
    batchers = []

    def start(**settings):
        batchers.append(Batcher(ServerSettings(**settings), Metrics()))
        batchers[-1].start()
        return batchers[-1]

    yield start
    for batcher in batchers:
        batcher.close()


class Hanging(Doubling):
    def compute(self, items, each_step):
        self.batches.append([*items])
        self.gate.wait()
        return items


def submitted(batcher, lane, *items, size=1):
    job = Job(lane, items, [size] * len(items))
    batcher.submit(job)
    return job


def test_batches_are_of_one_lane_in_order_and_within_the_tokens():
    batcher, batches = Batcher(ServerSettings(batch_tokens=10), Metrics()), []
    one, other = Doubling("one", batches=batches), Doubling("other", batches=batches)
    jobs = [
        submitted(batcher, lane, *items, size=size)
        for lane, items, size in ((one, [1, 2], 4), (other, [5], 99), (one, [], 1), (one, [3], 2), (one, [4], 1))
    ]
    assert batcher.waiting() == (5, 110)
    batcher.start()
    batcher.close()
    assert batches == [[1, 2, 3], [5], [4]]
    assert [job.future.result() for job in jobs] == [[2, 4], [10], [], [6], [8]]


def test_a_full_queue_takes_no_part_of_a_job(started):
    batcher, lane = started(max_queue=3, max_sentences=3, max_queue_tokens=9), Doubling(gate=threading.Event())
    running = submitted(batcher, lane, 0)
    while not lane.batches:
        time.sleep(0.001)
    first = submitted(batcher, lane, 1, 2)
    for items, size in (([3, 4], 1), ([3], 8)):
        with pytest.raises(RequestError, match="2 sentences wait") as caught:
            submitted(batcher, lane, *items, size=size)
        assert caught.value.status == 429 and caught.value.retry_after >= 1
    assert batcher.waiting() == (2, 2)
    first.future.cancel()  # makes room
    assert batcher.waiting() == (0, 0)
    last = submitted(batcher, lane, 3, 4)
    lane.gate.set()
    assert (running.future.result(9), last.future.result(9)) == ([0], [6, 8])
    assert lane.batches == [[0], [3, 4]]


def test_an_item_waits_for_others_only_so_long(started):
    batcher, lane = started(batch_wait=500, batch_tokens=10), Doubling()
    first = submitted(batcher, lane, 1)
    time.sleep(0.02)
    submitted(batcher, lane, 2)
    first.future.result(9)
    begun = time.monotonic()
    submitted(batcher, lane, 3, size=10).future.result(9)
    assert time.monotonic() - begun < 0.5, "a full batch waits for nobody"
    assert lane.batches == [[1, 2], [3]]


def test_a_failing_item_fails_only_its_own_job(started):
    batcher, gate = started(), threading.Event()
    lane = Doubling(gate=gate)
    first = submitted(batcher, lane, 0)
    while not lane.batches:
        time.sleep(0.001)
    jobs = [submitted(batcher, lane, *items) for items in ([1, 2], [13], [3])]
    gate.set()
    assert first.future.result(9) == [0]
    assert jobs[0].future.result(9) == [2, 4] and jobs[2].future.result(9) == [6]
    with pytest.raises(ValueError, match="13 can't"):
        jobs[1].future.result(9)
    assert lane.batches == [[0], [1, 2, 13, 3], [1, 2], [13], [3]]


def test_a_batch_goes_on_for_the_clients_that_are_left_and_ends_without_any():
    batcher, lane = Batcher(ServerSettings(), Metrics()), Doubling(gate=threading.Event())
    gone, left = submitted(batcher, lane, 1), submitted(batcher, lane, 2)
    batcher.start()
    while not lane.batches:
        time.sleep(0.001)
    gone.future.cancel()
    lane.gate.set()
    assert left.future.result(9) == [4]
    shut = Doubling("shut", gate=threading.Event())
    running = submitted(batcher, shut, 1)
    while not shut.batches:
        time.sleep(0.001)
    running.future.cancel()  # its gate stays shut
    assert submitted(batcher, Doubling(), 3).future.result(9) == [6]
    with pytest.raises(CancelledError):
        running.future.result()
    batcher.close()
    assert b"rskip_abandoned_batches_total 1.0" in batcher.metrics.text()


def test_a_server_that_always_fails_is_not_ready_until_a_minute_has_passed(started, monkeypatch):
    batcher = started()

    def states(lane, *items):
        for each in items:
            submitted(batcher, lane, each).future.exception(9)
            yield batcher.state

    broken, fine = Doubling("broken"), Doubling()
    assert [*states(fine, 13, 13, 13)] == ["ready"] * 3  # the clients' fault
    assert [*states(broken, 1, 1)] == ["ready"] * 2 and [*states(fine, 1)] == ["ready"]
    assert [*states(broken, 1, 1, 1)] == ["ready", "ready", "failing"]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert batcher.state == "ready"


def test_a_server_whose_computation_hangs_is_not_ready(started, monkeypatch):
    batcher, gate = started(timeout=30), threading.Event()
    job = submitted(batcher, Hanging(gate=gate), 1)
    while not job.lane.batches:
        time.sleep(0.001)
    now = time.monotonic()
    assert batcher.state == "ready"
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert batcher.state == "failing"
    gate.set()
    job.future.result(9)
    monkeypatch.undo()
    assert submitted(batcher, Doubling(), 1).future.result(9) == [2] and batcher.state == "ready"


def test_closing_computes_what_was_accepted():
    batcher = Batcher(ServerSettings(), Metrics())
    jobs = [submitted(batcher, Doubling(), number) for number in range(9)]
    batcher.start()
    assert batcher.state == "ready"
    batcher.close()
    assert [job.future.result(0) for job in jobs] == [[2 * number] for number in range(9)]
    assert batcher.state == "shutting down"
    with pytest.raises(RequestError, match="shutting down"):
        submitted(batcher, Doubling(), 1)


def test_a_request_may_not_be_larger_than_the_queue():
    with pytest.raises(SettingError, match="max_queue is 9: expected at least max_sentences, 1,000"):
        ServerSettings(max_queue=9)
