"""Every step of deploy/Dockerfile that can run without Docker, in a fresh environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

PATHS = ("/opt/rskip", "/source")  # folders of the image, which are here in the test's folder
# steps that change the system: its packages and its users
NOT_RUN = ("apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev", "useradd --system")


def steps_of(dockerfile: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile and what follows each of them."""
    lines = [line for line in dockerfile.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def copied(root: Path, folder: Path) -> None:
    """Copies what .dockerignore leaves."""
    lines = (root / ".dockerignore").read_text("utf-8").splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    ignored = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines if line.startswith("**/")))
    assert {*lines} == {lines[0], "*", *(f"!{name}" for name in kept), "**/__pycache__", "**/*.so"}
    for name in kept:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=ignored)
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(root / name, folder / name)


@pytest.mark.install
def test_the_container_is_built_and_serves(root: Path, tmp_path: Path) -> None:
    moved = {path: str(tmp_path) + path for path in PATHS}

    def here(text: str) -> str:
        return re.sub("|".join(PATHS), lambda found: moved[found[0]], text)

    arguments: dict[str, str] = {}
    entry, bases = [], []
    for instruction, value in steps_of(root / "deploy/Dockerfile"):
        if instruction == "ARG" and "=" in value:
            arguments[value.partition("=")[0]] = value.partition("=")[2]
        elif instruction == "FROM":
            bases.append(value.split()[0])
        elif instruction == "COPY" and value == ". /source":
            copied(root, tmp_path / "source")
        elif instruction == "RUN" and not value.startswith(NOT_RUN):
            command = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", here(value))
            made = subprocess.run(
                command, shell=True, cwd=tmp_path, env={**environment(), **arguments}, capture_output=True, text=True
            )
            assert made.returncode == 0, f"{command}\n{made.stdout}{made.stderr}"
        elif instruction == "ENTRYPOINT":
            entry = [here(word) for word in json.loads(value)]
    assert bases == ["python:3.12-slim"] * 2 and entry
    assert list(tmp_path.glob("opt/rskip/lib/python*/site-packages/rskip/cpu/_kernels.abi3.so"))
    assert not list(tmp_path.glob("opt/rskip/lib/python*/site-packages/torch"))

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = ["--model", f"de={root}/checkpoints/multi30k_en_de/2rskip_ln", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*entry, *model], cwd=tmp_path, env=environment(), stderr=log)
    try:
        deadline = time.monotonic() + 60
        while "serving de at" not in (tmp_path / "log").read_text():
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        assert answer(port, "/health") == {"status": "ok"} and answer(port, "/ready") == {"status": "ready"}
        asked = b"q=A dog runs.&source=en&target=de"
        assert answer(port, "/translate", asked) == {"translatedText": "Ein Hund rennt."}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    size = sum(file.lstat().st_size for file in tmp_path.glob("opt/rskip/**/*"))
    print(f"the environment has {size / 1e6:.0f} MB")
    assert size < 250e6


def environment() -> dict[str, str]:
    """The environment without what an image has not: the project in PYTHONPATH, and the Makefile's constraints."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")
    }


def answer(port: int, path: str, form: bytes | None = None) -> object:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", form, timeout=60) as found:
        return json.load(found)
