"""Forks processes that go on as `python ARGUMENTS...` would, with PyTorch (and fairseq, where asked) imported already.

`python fork_server.py MODULE...` imports the modules once, which is most of such a process's time. A request is a JSON
line on stdin, {"arguments", "folder", "environment", "text", "modules"}; its answer is a JSON line on stdout,
{"returncode", "stdout", "stderr"}. `arguments` are ["-c", CODE] or a Python program and its arguments. `modules` are
imported too, in a server that is forked from this one at the first request for them.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import sys
import tempfile
from typing import Any, TextIO

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
    """Forks the process, waits for its end, and reads what it has written."""
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        text.write(request.pop("text").encode())
        text.seek(0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for descriptor, stream in enumerate((text, output, errors)):
                    os.dup2(stream.fileno(), descriptor)
                sys.stdin = os.fdopen(0)
                status = become(**request)
                atexit._run_exitfuncs()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for stream in (output, errors):
            stream.seek(0)
        return {"returncode": status, "stdout": output.read().decode(), "stderr": errors.read().decode()}


class Server:
    """Another server, forked from this one, that has imported more modules."""

    def __init__(self, modules: list[str]) -> None:
        (their_input, requests), (answers, their_output) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(requests)
            os.close(answers)
            serve(modules, os.fdopen(their_input), os.fdopen(their_output, "w"))
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
