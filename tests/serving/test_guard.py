"""What is refused before a request is read, and what every answer carries."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
DOG = {"text": "A dog runs.", "target": "de"}
BODY = json.dumps(DOG).encode()


def test_bodies_hosts_and_origins(serving):
    service = serving(max_body=100, app={"hosts": ["localhost"], "origins": ["https://good.example"]})

    def status(body=BODY, **headers):
        headers = {"Content-Type": "application/json", **headers}
        answer = service.send("POST", "/v1/translate", content=body, headers=headers)
        assert answer.status_code == 200 or [*answer.json()] == ["error"]
        return answer.status_code

    async def parts():
        for _ in range(3):
            yield b"x" * 60

    assert status() == 200
    assert status(b"x" * 101) == 413
    assert status(parts()) == 413, "a body without a length"
    assert status(Host="evil.example:8000") == 421
    assert status(Host="[") == status(Host="") == 421
    assert status(Host="localhost:8000", Origin="http://localhost:8000") == 200
    assert status(Origin="https://good.example") == 200
    assert status(Origin="https://evil.example") == 403
    assert status(Origin="null") == 403


def test_no_other_page_may_read_answers_by_default(serving):
    answer = serving().send("POST", "/v1/translate", json=DOG)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    origin = {"Origin": "https://good.example"}
    answer = serving(app={"origins": ["https://good.example"]}).send("POST", "/v1/translate", json=DOG, headers=origin)
    assert answer.headers["access-control-allow-origin"] == "https://good.example"


def test_head_is_get_without_its_content_and_a_slash_at_the_end_is_none(serving):
    service = serving()
    for path in ("/", "/page.js", "/languages", "/languages/", "/health", "/openapi.json"):
        answers = [service.send(method, path) for method in ("GET", "HEAD")]
        assert [each.status_code for each in answers] == [200, 200] and not answers[1].content
        assert answers[0].headers == answers[1].headers
    assert service.send("HEAD", "/v1/translate").status_code == 405
    answer = service.send("POST", "/v1/translate/", json=DOG, headers={"X-Forwarded-Proto": "https"})
    assert answer.status_code == 200, "a redirect would lose a proxy's scheme and prefix"


@pytest.mark.parametrize(
    ("headers", "body", "status", "message"),
    [
        ({"Content-Encoding": "gzip"}, BODY, 415, "the content encoding is gzip: expected a body"),
        ({"Content-Encoding": "identity"}, BODY, 200, ""),
        ({}, b"\xef\xbb\xbf" + BODY, 400, "the body begins with a byte order mark"),
        ({}, BODY.decode().encode("utf-16"), 400, "the body begins with a byte order mark"),
        ({"Transfer-Encoding": "chunked", "Content-Length": "1"}, BODY, 400, "Content-Length and Transfer-Encoding"),
    ],
)
def test_a_body_in_another_form_gets_a_clear_line(serving, headers, body, status, message):
    headers = {"Content-Type": "application/json", **headers}
    answer = serving().send("POST", "/v1/translate", content=body, headers=headers)
    assert answer.status_code == status and message in answer.json().get("error", "")
    assert (answer.headers.get("connection") == "close") is ("Content-Length" in headers or status == 415)


def request(text: str | list[str]) -> bytes:
    body = json.dumps({"text": text, "target": "de"}).encode()
    head = "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("count", [1, 2])
def test_a_client_that_sends_nothing_more_gets_its_answers(address, count):
    host = urlsplit(address())
    with socket.create_connection((host.hostname, host.port), timeout=20) as client:
        client.sendall(request("A dog runs.") * count)
        client.shutdown(socket.SHUT_WR)
        found = b"".join(iter(lambda: client.recv(4096), b""))
    assert found.count(b"HTTP/1.1 200 ") == found.count(b'"translations":[{"text":"Ein Hund rennt."') == count


def test_a_client_that_sends_its_whole_body_first_gets_the_answer(address):
    host = urlsplit(address(max_body=6_000_000))
    client = http.client.HTTPConnection(host.hostname, host.port, timeout=20)
    client.request("POST", "/v1/translate", b"x" * 11_000_000, {"Content-Type": "application/json"})
    assert client.getresponse().status == 413
    client.close()


def test_clients_that_go_away_end_their_searches_and_the_others_are_answered(address):
    lines: list[str] = []
    host = urlsplit(address(app={"log": lines.append}, max_queue_tokens=10**9, max_queue=10**6, batch_tokens=200))
    place, large = (host.hostname, host.port), request(["A man in a red shirt is standing with a big dog."] * 200)
    for reset in (False, True) * 50:
        with socket.create_connection(place, timeout=20) as client:
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(large)
            time.sleep(0.005)
    with socket.create_connection(place, timeout=60) as client:
        client.sendall(request("A dog runs."))
        client.shutdown(socket.SHUT_WR)
        assert b"Ein Hund rennt." in b"".join(iter(lambda: client.recv(4096), b""))
    deadline = time.monotonic() + 60
    while len(lines) < 101 and time.monotonic() < deadline:
        time.sleep(0.01)
    statuses = [json.loads(line)["status"] for line in lines]
    assert (statuses.count(499), statuses.count(200)) == (100, 1)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (b"", b""),
        (b"POST /translate HTTP/1.1\r\nHost: local", b""),  # slowloris
        (b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nContent-Type: application/json\r\n\r\n{",
         b"HTTP/1.1 408 "),
        (b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{", b"HTTP/1.1 404 "),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /he", b'HTTP/1.1 200 '),
        (b"\x16\x03\x01 TLS\r\n\r\n", b"HTTP/1.1 400 "),
    ],
)  # fmt: skip
def test_a_client_that_sends_nothing_more_is_closed(address, sent, received):
    host = urlsplit(address(read_timeout=0.2))
    with socket.create_connection((host.hostname, host.port), timeout=20) as client:
        client.sendall(sent)
        found = b""
        while part := client.recv(4096):
            found += part
    assert found[: len(received)] == received and (received or not found)


def test_a_client_that_reads_no_answer_is_closed(address):
    host = urlsplit(address(write_timeout=0.2, app={"origins": ["*"]}))
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect((host.hostname, host.port))
        sending = True
        while sending:  # pipelined requests, until the server reads no more
            try:
                client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
            except OSError as error:
                assert not isinstance(error, TimeoutError), "the connection is still open"
                sending = False


def test_a_request_that_takes_too_long_ends(serving):
    service = serving(timeout=0.05, max_characters=10**6)
    answer = service.send("POST", "/v1/translate", json={"text": ["A dog runs fast. " * 20] * 500, "target": "de"})
    assert answer.status_code == 504 and answer.json()["error"].startswith("no result within 0.05 s")
    deadline = time.monotonic() + 30
    assert service.batcher.waiting() == (0, 0)
    while b"rskip_abandoned_batches_total 0.0" in service.metrics.text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert b"rskip_abandoned_batches_total 1.0" in service.metrics.text()


def test_the_log_has_one_line_per_request_and_no_texts_unless_asked_for(serving):
    for with_texts in (False, True):
        lines: list[str] = []
        service = serving(app={"log": lines.append, "log_texts": with_texts})
        service.send("POST", "/v1/translate", json={**DOG, "text": "A dog\u2028 runs."})
        service.send("GET", "/secret/path?q=secret")
        asked = {"q": "A dog.", "source": "eng_Latn", "target": "fra_Latn"}
        service.send("POST", "/translate", json=asked)
        first, second, third = map(json.loads, lines)
        assert (third["source"], third["target"]) == ("en", "fr"), "the model's codes"
        assert (first["route"], first["status"], first["sentences"], first["model"]) == ("/v1/translate", 200, 1, "de")
        assert (second["route"], second["status"]) == ("other", 404) and "secret" not in lines[1]
        assert first.get("texts") == (["A dog\u2028 runs."] if with_texts else None)
        assert "dog" not in lines[0] or with_texts
    metrics = service.send("GET", "/metrics").text
    assert 'rskip_requests_total{method="POST",route="/v1/translate",status="200"} 1.0' in metrics
    assert 'rskip_source_tokens_total{model="de"} 6.0' in metrics


def test_an_unexpected_error_is_logged_and_answered_without_a_traceback(serving, models, monkeypatch, caplog):
    service = serving()
    monkeypatch.setattr(type(service.models), "translator", lambda *_: 1 / 0)
    answer = service.send("POST", "/v1/translate", json=DOG)
    assert answer.status_code == 500
    assert answer.json() == {"error": "the server failed on this request; its log says why"}
    assert "ZeroDivisionError" in caplog.text


def test_a_client_that_goes_away_while_it_sends_leaves_one_line_in_the_log(address, caplog):
    lines: list[str] = []
    host = urlsplit(address(app={"log": lines.append}))
    with socket.create_connection((host.hostname, host.port), timeout=20) as client:
        client.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n"
                       b"Content-Type: application/json\r\n\r\n{")  # fmt: skip
        time.sleep(0.1)
    deadline = time.monotonic() + 20
    while not lines and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [json.loads(line)["status"] for line in lines] == [499] and not caplog.text


def test_a_wrong_route_or_method_is_named(serving):
    service = serving()
    missing, other = service.send("POST", "/v1/translte"), service.send("GET", "/v1/translate")
    assert (missing.status_code, missing.json()["error"][:31]) == (404, "there is no route '/v1/translte")
    assert (other.status_code, other.headers["allow"]) == (405, "POST")


def test_a_request_beyond_the_limit_of_connections_is_refused_in_the_servers_form(address):
    host = urlsplit(address(max_connections=1))

    def asked(path):
        with socket.create_connection((host.hostname, host.port), timeout=20) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            return b"".join(iter(lambda: client.recv(4096), b""))

    assert asked("/health").startswith(b"HTTP/1.1 200 ")
    with socket.create_connection((host.hostname, host.port), timeout=20):
        answer = asked("/health")
    assert answer.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 1\r\n" in answer.lower()
    assert answer.endswith(b'{"error":"the server has too many open connections: try again in 1 s"}')
