"""`rskip serve` as a process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from functools import partial

import pytest

from rskip.cli.main import main

pytest.importorskip("fastapi", reason="needs the extra serve")
MODEL = "checkpoints/multi30k_en_de/2rskip_ln"


def test_shutdown_under_load_answers_every_accepted_request(root):
    command = [sys.executable, "-m", "rskip", "serve", "--model", MODEL, "--port", "0", "--batch-tokens", "60"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("serving multi30k_en_de/2rskip_ln at http://127.0.0.1:") or "2rskip_ln at" in first
        address = first.split(" at ")[1].split(" ")[0]
        taken = subprocess.run(
            [*command[:-3], address.rpartition(":")[2]], cwd=root, capture_output=True, text=True, env=environment
        )
        assert taken.returncode == 2 and taken.stderr.count("\n") == 1 and "can't listen on port" in taken.stderr

        answers: list[tuple[int, str]] = []
        sentences = ["A man in a red shirt is standing on the street with a big dog."] * 100
        body = json.dumps({"text": sentences, "target": "de"}).encode()

        def ask():
            request = urllib.request.Request(f"{address}/v1/translate", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=100) as answer:
                answers.append((answer.status, json.load(answer)["translations"][99]["text"]))

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        waiting = 0.0
        while waiting < 100:  # until all requests were accepted, though not computed
            metrics = urllib.request.urlopen(f"{address}/metrics", timeout=100).read().decode()
            waiting = float(metrics.rpartition("\nrskip_queue_items ")[2].split()[0])
            if len(answers) == 4:
                pytest.skip("this machine was too fast")
        process.send_signal(signal.SIGTERM)
        place = "127.0.0.1", int(address.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            while True:
                socket.create_connection(place, timeout=100).close()
                time.sleep(0.01)
        assert len(answers) < 4, "new connections are refused while accepted requests are computed"
        for client in clients:
            client.join()
        assert process.wait(60) == 0
        assert [status for status, _ in answers] == [200] * 4 and len({text for _, text in answers}) == 1
        assert all(json.loads(line)["status"] == 200 for line in process.stderr)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", MODEL, "--source-lang", "xx"], "--source-lang and --target-lang are for multilingual models"),
        (["--model", "a="], "--model a=: expected NAME=MODEL"),
        (["--model", "checkpoints/cifar10_resnet20/preact20_2rskip_ln"], "is not a translation model"),
        (["--model", f"a={MODEL}", "--model", f"a={MODEL}"], "two models are called a"),
        (["--model", MODEL, "--port", "99999"], "--port is 99999: expected 0 to 65535"),
        (["--model", MODEL, "--host", "nowhere.invalid"], "can't listen on port 0 of nowhere.invalid"),
        (["--model", MODEL, "--quiet", "--log-texts"], "--log-texts can't be combined with --quiet"),
        (["--model", MODEL, "--api-keys", "empty"], "empty holds no API key: expected one per line"),
        (["--model", MODEL, "--allowed-host", "http://a.org"], "--allowed-host is 'http://a.org': expected a name"),
        (["--model", MODEL, "--cors", "example.org"], "--cors is 'example.org': expected a scheme and a name"),
    ],
)
def test_mistakes_are_one_line(root, tmp_path, monkeypatch, capsys, flags, message):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "checkpoints").symlink_to(root / "checkpoints")
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--port", "0", *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error


@pytest.mark.parametrize(("host", "private"), [("127.0.0.1", True), ("127.1", True), ("0.0.0.0", False)])
def test_a_socket_is_private_if_it_is_bound_to_a_loopback_address(host, private):
    from rskip.serving.server import is_private, open_port

    with open_port(host, 0) as listening:
        assert is_private(listening) is private


@pytest.mark.parametrize("given", ["Example.org", "example.org:8000", "EXAMPLE.org:"])
def test_hosts_and_origins_are_compared_as_browsers_send_them(given):
    from rskip.serving.guard import allowed_host, allowed_origin

    assert allowed_host(given) == "example.org"
    assert [*map(allowed_host, ("::1", "[::1]:80"))] == ["::1"] * 2
    assert allowed_origin("HTTPS://Example.org:443/") == "https://example.org"
    assert allowed_origin("http://[::1]:8000") == "http://[::1]:8000"
    assert allowed_origin("moz-extension://0af") == "moz-extension://0af" and allowed_origin("*") == "*"


def test_a_key_file_may_begin_with_a_byte_order_mark(tmp_path):
    from rskip.cli._serve import read_keys

    (tmp_path / "keys").write_bytes(b"\xef\xbb\xbfsecret\r\n")
    assert read_keys(tmp_path / "keys") == ["secret"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_before_the_server_runs_ends_it(monkeypatch, number):
    import uvicorn

    from rskip.serving.server import run_server
    from rskip.serving.settings import ServerSettings

    ended = []

    def run(server, sockets):
        signal.raise_signal(number)
        ended.append(server.should_exit)

    monkeypatch.setattr(uvicorn.Server, "run", run)
    before = signal.signal(number, signal.SIG_DFL)  # nohup, and a shell's background, ignore some
    try:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            run_server(None, listening, ServerSettings())
    finally:
        signal.signal(number, before)
    assert ended == [True]


@pytest.mark.parametrize("ignored", [False, True])
def test_sighup_ends_the_server_with_status_0_unless_it_is_ignored(root, ignored):
    command = [sys.executable, "-m", "rskip", "serve", "--model", MODEL, "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    action = signal.SIG_IGN if ignored else signal.SIG_DFL  # the tests may run under nohup
    before = partial(signal.signal, signal.SIGHUP, action)
    with (
        subprocess.Popen(
            command, cwd=root, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=before
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)  # if it goes on, by a fault
        assert process.stderr is not None
        address = process.stderr.readline().split(" at ")[1].split(" ")[0]
        process.send_signal(signal.SIGHUP)
        if ignored:
            time.sleep(0.5)
            assert urllib.request.urlopen(f"{address}/health", timeout=20).status == 200
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
