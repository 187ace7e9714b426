"""Clients that send requests to a server, each the next one when it has its answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Load:
    """The answers to requests.

    latencies: seconds per request. statuses, contents: in the order of the requests.
    """

    seconds: float
    latencies: list[float]
    statuses: list[int]
    contents: list[bytes]

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def translations(self) -> list[str]:
        return [json.loads(content)["translations"][0]["text"] for content in self.contents]


def translate_requests(sentences: Sequence[str]) -> list[bytes]:
    """One request per sentence."""
    return [post("/v1/translate", json.dumps({"text": each}).encode()) for each in sentences]


def post(path: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def send(port: int, requests: Sequence[bytes], clients: int, *, keep: bool = True) -> Load:
    """Sends the requests by so many clients at the same time.

    :param keep: keep the contents of answers.
    """
    return asyncio.run(_send(port, requests, clients, keep))


async def _send(port: int, requests: Sequence[bytes], clients: int, keep: bool) -> Load:
    answers: list[Any] = [None] * len(requests)
    latencies = [0.0] * len(requests)
    left = iter(range(len(requests)))

    async def client() -> None:
        connection: Any = None
        for number in left:
            start = time.perf_counter()
            for attempt in (1, 2):  # the server closes a connection after some errors
                connection = connection or await asyncio.open_connection("127.0.0.1", port)
                try:
                    answers[number] = await _answer(connection, requests[number], keep)
                    break
                except (asyncio.IncompleteReadError, ConnectionError):
                    connection[1].close()
                    connection = None
                    if attempt == 2:
                        answers[number] = (0, b"", True)
            latencies[number] = time.perf_counter() - start
            if connection and answers[number][2]:
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - start
    return Load(seconds, latencies, [each[0] for each in answers], [each[1] for each in answers])


async def _answer(connection: Any, request: bytes, keep: bool) -> tuple[int, bytes, bool]:
    reader, writer = connection
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    body = await reader.readexactly(length)
    return int(head[9:12]), body if keep else b"", b"connection: close" in head
