"""The queue and the threads that compute its batches."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from rskip.serving.batching import Batcher  # noqa: E402
from rskip.serving.errors import RequestError  # noqa: E402
from rskip.serving.metrics import Metrics  # noqa: E402
from rskip.serving.queue import Job, JobQueue, QueueFull  # noqa: E402
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


def taken(queue, **given):
    return [each.content for each in queue.take(**{"tokens": 10, "wait": 0, **given})]


def test_batches_are_of_one_lane_in_order_and_within_the_tokens():
    queue, one, other = JobQueue(100, most_tokens=200), Doubling("one"), Doubling("other")
    for lane, items, size in ((one, [1, 2], 4), (other, [5], 99), (one, [3, 4], 2)):
        queue.put(Job(lane, items, [size] * len(items)))
    assert (len(queue), queue.tokens) == (5, 111)
    assert [taken(queue) for _ in range(3)] == [[1, 2, 3], [5], [4]]


def test_a_full_or_closed_queue_takes_no_part_of_a_job():
    queue, lane = JobQueue(3, most_tokens=9), Doubling()
    first = Job(lane, [1, 2], [1, 1])
    queue.put(first)
    with pytest.raises(QueueFull):
        queue.put(Job(lane, [3, 4], [1, 1]))
    with pytest.raises(QueueFull):
        queue.put(Job(lane, [3], [8]))
    assert len(queue) == 2
    first.future.cancel()  # makes room
    assert len(queue) == queue.tokens == 0 and not first.items
    queue.put(Job(lane, [3, 4], [1, 1]))
    queue.close()
    with pytest.raises(RequestError, match="shutting down"):
        queue.put(Job(lane, [5], [1]))
    assert taken(queue) == [3, 4] and queue.take(tokens=10, wait=0) is None


def test_an_item_waits_for_others_only_so_long():
    queue, lane = JobQueue(10, most_tokens=99), Doubling()
    queue.put(Job(lane, [1], [1]))
    threading.Timer(0.02, queue.put, [Job(lane, [2], [1])]).start()
    assert taken(queue, wait=0.5) == [1, 2]
    queue.put(Job(lane, [3], [10]))
    assert taken(queue, wait=1000) == [3], "a full batch waits for nobody"


@pytest.fixture
def batcher():
    batcher = Batcher(ServerSettings(max_queue=4, max_sentences=4), Metrics())
    batcher.start()
    yield batcher
    batcher.close()


def submitted(batcher, lane, *items):
    job = Job(lane, items, [1] * len(items))
    batcher.submit(job)
    return job


def test_a_failing_item_fails_only_its_own_job(batcher):
    gate = threading.Event()
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
    assert lane.batches == [[0], [1, 2, 13, 3], [1], [2], [13], [3]]


def test_a_batch_without_clients_ends_and_a_full_queue_says_when_to_return(batcher):
    lane, after = Doubling(gate=threading.Event()), Doubling("after")
    running = submitted(batcher, lane, 1)
    while not lane.batches:
        time.sleep(0.001)
    waiting = [submitted(batcher, after, number) for number in range(4)]
    with pytest.raises(RequestError, match="4 sentences wait") as caught:
        submitted(batcher, after, 5)
    assert caught.value.status == 429 and caught.value.retry_after >= 1
    running.future.cancel()  # the gate stays shut
    assert [job.future.result(9) for job in waiting] == [[0], [2], [4], [6]]
    with pytest.raises(CancelledError):
        running.future.result()
    assert b"rskip_abandoned_batches_total 1.0" in batcher.metrics.text()


def test_a_server_that_always_fails_is_not_ready_until_a_minute_has_passed(batcher, monkeypatch):
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
