"""Worker processes and what happens when they are killed. Every other test here also computes through `Worker`."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from rskip.serving.errors import RequestError  # noqa: E402
from rskip.serving.models import Models  # noqa: E402
from rskip.serving.workers import Worker, WorkerLost, work  # noqa: E402
from tests.serving.conftest import Threads  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")
MODEL = "checkpoints/multi30k_en_de/2rskip_ln"


@contextmanager
def running(root: Path, *flags: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address and the process of a server."""
    command = [sys.executable, "-m", "rskip", "serve", "--model", MODEL, "--port", "0", "--quiet", *flags]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split(" at ")[1].split(" ")[0], process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def translated(address: str, sentences: list[str]) -> list[str]:
    body = json.dumps({"text": sentences, "target": "de"}).encode()
    request = urllib.request.Request(f"{address}/v1/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=100) as answer:
        return [each["text"] for each in json.load(answer)["translations"]]


def metric(address: str, name: str) -> float:
    text = urllib.request.urlopen(f"{address}/metrics", timeout=100).read().decode()
    return float(text.rpartition(f"\n{name} ")[2].split()[0])


def children(process: subprocess.Popen[str], count: int) -> list[int]:
    """The server and its workers, in the order in which they started."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [*map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())]
        found = [each for each in found if ") Z " not in Path(f"/proc/{each}/stat").read_text()]  # waited for later
        if len(found) == count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"the server does not have {count} processes")


def test_requests_of_killed_workers_are_answered_and_a_killed_server_is_replaced(root: Path) -> None:
    with running(root, "--batch-tokens", "60", "--workers", "2") as (address, process):
        answers: list[list[str]] = []
        sentences = ["A man in a red shirt is standing on the street with a big dog."] * 60
        clients = [threading.Thread(target=lambda: answers.append(translated(address, sentences))) for _ in range(4)]
        for client in clients:
            client.start()
        _, *workers = children(process, 3)
        while metric(address, "rskip_queue_items") < 60:
            assert not answers, "this machine was too fast"
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        for client in clients:
            client.join()
        assert len(answers) == 4 and len({text for texts in answers for text in texts}) == 1
        assert metric(address, "rskip_lost_workers_total") == 2

        server, *workers = children(process, 3)
        os.kill(server, signal.SIGKILL)
        assert process.stderr is not None
        ended = "a worker process ended: another one takes its place\n"
        assert [process.stderr.readline() for _ in range(2)] == [ended] * 2
        assert process.stderr.readline() == "the server was killed by signal 9: starting it again\n"
        assert translated(address, ["A dog runs."]) == ["Ein Hund rennt."], "the connection waited for the new server"
        assert not {server, *workers} & {*children(process, 2)}


@dataclass(frozen=True)
class Waiting:
    """Waits until it is told to end."""

    model: str = "waiting"

    def compute(self, items, each_step):
        while items != ["end"]:
            each_step(1)
        return items

    def produced(self, result):
        return 1


def nothing(step: int) -> None:
    pass


def unwanted(step: int) -> None:
    raise KeyError


def test_a_worker_that_is_lost_twice_fails_and_one_whose_batch_nobody_wants_goes_on() -> None:
    hire, lost = Threads(Models([]), die, die, work), list[int]()
    compute = Worker(hire, hire.models, lost=lambda: lost.append(1)).compute
    with pytest.raises(WorkerLost):
        compute(Waiting(), ["end"], nothing)
    assert len(lost) == 2
    for _ in range(2):
        with pytest.raises(KeyError):
            compute(Waiting(), ["go on"], unwanted)
        assert compute(Waiting(), ["end"], nothing) == ["end"]
    assert len(hire.started) == 3


def test_a_worker_that_hangs_is_killed_and_replaced(monkeypatch) -> None:
    def hang(worker: socket.socket, models: Models) -> None:
        with worker:
            while worker.recv(1000):
                pass

    monkeypatch.setattr("rskip.serving.workers._PATIENCE", 0.1)
    hire, lost = Threads(Models([]), hang, work), list[int]()
    compute = Worker(hire, hire.models, lost=lambda: lost.append(1)).compute
    with pytest.raises(KeyError):
        compute(Waiting(), ["go on"], unwanted)
    assert (len(hire.killed), len(lost)) == (1, 1)
    assert compute(Waiting(), ["end"], nothing) == ["end"]


def answering(content: bytes) -> Any:
    """A worker that sends one message and ends."""

    def run(worker: socket.socket, models: Models) -> None:
        with Connection(worker.detach()) as connection:
            connection.recv_bytes()
            connection.send_bytes(content)

    return run


def die(worker: socket.socket, models: Models) -> None:
    worker.close()


def test_a_worker_that_died_while_idle_takes_no_attempt_of_the_next_batch() -> None:
    hire, lost = Threads(Models([]), answering(pickle.dumps(["first"])), die, work), list[int]()
    compute = Worker(hire, hire.models, lost=lambda: lost.append(1)).compute
    assert compute(Waiting(), ["end"], nothing) == ["first"]
    hire.started[0].join()
    assert compute(Waiting(), ["end"], nothing) == ["end"]
    assert len(lost) == 2


def test_a_batch_fails_if_no_worker_can_be_started_and_the_next_one_asks_again() -> None:
    class Late(Threads):
        fails = True

        def __call__(self) -> socket.socket:
            if self.fails:
                self.fails = False
                raise OSError
            return super().__call__()

    hire = Late(Models([]))
    compute = Worker(hire, hire.models, lost=lambda: None).compute
    with pytest.raises(RequestError, match="no worker process could be started: try again later") as error:
        compute(Waiting(), ["end"], nothing)
    assert error.value.status == 503
    assert compute(Waiting(), ["end"], nothing) == ["end"]


def test_a_sentence_that_kills_its_workers_fails_and_its_batch_is_answered(serving, monkeypatch) -> None:
    whole = Worker.compute

    def compute(self, lane, items, each_step):
        if any(each.text == "A bomb." for each in items):
            raise WorkerLost
        return whole(self, lane, items, each_step)

    monkeypatch.setattr(Worker, "compute", compute)
    service = serving()
    texts = ["A dog runs.", "A bomb.", "A dog runs."] * 3
    answers = service.send_all([("POST", "/v1/translate", {"json": {"text": each, "target": "de"}}) for each in texts])
    assert [each.status_code for each in answers] == [200, 500, 200] * 3
    assert answers[1].json() == {
        "error": "the processes that computed this request were killed: send less, or try again later"
    }
