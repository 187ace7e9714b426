"""Forks processes that go on as `python ARGUMENTS...` would, with PyTorch (and fairseq, where asked) imported already.

`python fork_server.py MODULE...` imports the modules once, which is most of such a process's time. A request is a JSON
line on stdin, {"arguments", "folder", "environment", "text", "ranks", "modules"}; its answer is a JSON line on stdout,
{"returncode", "stdout", "stderr"}. `arguments` are ["-c", CODE] or a Python program and its arguments. `ranks` is 0 for
one process, otherwise how many start together, with the variables that torchrun gives them. `modules` are imported
too, in a server that is forked from this one at the first request for them.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
from typing import IO, Any, TextIO

from fairseq_compat import one_line_errors


def become(arguments: list[str], folder: str, environment: dict[str, str]) -> int:
    """In the forked process: does what `python ARGUMENTS...` does and returns its exit status."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    try:
        if arguments[0] == "-c":
            sys.argv, sys.path[0:1] = arguments[:1], ["", *filter(None, paths)]
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv, sys.path[0:1] = arguments, [os.path.dirname(arguments[0]), *filter(None, paths)]
            if "fairseq" in sys.modules:
                one_line_errors.install()  # as importing fairseq would do in a program of this name
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as stop:
        return stopped(stop)
    except BaseException:
        try:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        except SystemExit as stop:
            return stopped(stop)
        return 1
    return 0


def stopped(stop: SystemExit) -> int:
    """The exit status that Python makes of it."""
    if isinstance(stop.code, str):
        print(stop.code, file=sys.stderr)
        return 1
    return stop.code or 0


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Forks the processes, waits for their end, and reads what they have written."""
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        text.write(request.pop("text").encode())
        text.seek(0)
        own, variables = request.pop("environment"), variables_of_ranks(request.pop("ranks"))
        children = [fork({**request, "environment": {**own, **each}}, text, output, errors) for each in variables]
        status = status_of(children)
        for stream in (output, errors):
            stream.seek(0)
        return {"returncode": status, "stdout": output.read().decode(), "stderr": errors.read().decode()}


def variables_of_ranks(ranks: int) -> list[dict[str, str]]:
    """The variables of each process by which torchrun's processes find each other."""
    if not ranks:
        return [{}]
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(listener.getsockname()[1])}
    sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [{**meeting, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def fork(request: dict[str, Any], *streams: IO[bytes]) -> int:
    """The number of a process that does what is asked."""
    if child := os.fork():
        return child
    status = 1
    try:
        for descriptor, stream in enumerate(streams):
            os.dup2(stream.fileno(), descriptor)
        sys.stdin = os.fdopen(0)
        status = become(**request)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def status_of(children: list[int]) -> int:
    """The exit status of the first process that fails, which ends the others, or 0."""
    status, running = 0, set(children)
    while running:
        child, ending = os.wait()
        running.discard(child)
        if child in children and status == 0 and (status := os.waitstatus_to_exitcode(ending)) != 0:
            for other in running:
                os.kill(other, signal.SIGTERM)
    return status


class Server:
    """Another server, forked from this one, that has imported more modules."""

    def __init__(self, modules: list[str]) -> None:
        (their_input, requests), (answers, their_output) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(requests)
            os.close(answers)
            with os.fdopen(their_input) as given, os.fdopen(their_output, "w") as taken:
                serve(modules, given, taken)
            os._exit(0)
        os.close(their_input)
        os.close(their_output)
        self.requests, self.answers = os.fdopen(requests, "w"), os.fdopen(answers)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps(request), file=self.requests, flush=True)
        return json.loads(self.answers.readline())


def serve(modules: list[str], requests: TextIO, answers: TextIO) -> None:
    """Answers requests until there are no more."""
    for module in modules:
        importlib.import_module(module)
    servers: dict[str, Server] = {}
    for line in requests:
        request = json.loads(line)
        if more := request.pop("modules"):
            name = " ".join(more)
            if name not in servers:
                servers[name] = Server(more)
            found = servers[name].answer({**request, "modules": []})
        else:
            found = answer(request)
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1:], sys.stdin, os.fdopen(os.dup(1), "w"))
