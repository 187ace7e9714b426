"""Runs pieces of code, each in a process of its own that has imported PyTorch but not fairseq.

A request is a JSON line on stdin, {"code", "folder", "environment"}; its answer is a JSON line on stdout,
{"returncode", "stdout", "stderr"}. Importing PyTorch takes most of the time of importing fairseq, so
forking a process that has done so makes tests of fairseq's import four times as fast.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from typing import IO

import hydra  # noqa: F401
import sacrebleu  # noqa: F401
import torch.distributed
import torch.nn.parallel
import torch.quantization  # noqa: F401


def run(code: str, folder: str, environment: dict[str, str], output: IO[bytes], errors: IO[bytes]) -> None:
    """In the forked process: becomes `python -c code` in that folder and environment; never returns."""
    status = 1
    try:
        for stream, descriptor in ((output, 1), (errors, 2)):
            os.dup2(stream.fileno(), descriptor)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[0:1] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    assert "fairseq" not in sys.modules
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                run(request["code"], request["folder"], request["environment"], output, errors)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = []
            for stream in (output, errors):
                stream.seek(0)
                texts.append(stream.read().decode())
        print(
            json.dumps({"returncode": status, "stdout": texts[0], "stderr": texts[1]}),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    main()
