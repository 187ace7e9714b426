"""Fresh processes with and without a mend, and a tiny corpus for fairseq's own programs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Process = subprocess.CompletedProcess[str]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with one thread, without torchrun's variables, and with these."""
    kept = {name: value for name, value in os.environ.items() if name != "FAIRSEQ_COMPAT_DISABLE"}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", **variables}


@pytest.fixture
def bare_python(tmp_path: Path) -> Callable[..., Process]:
    """Runs code in a process of its own, in an empty folder; `without` names mends to leave out."""

    def run(code: str, *options: str, without: str = "", **variables: str) -> Process:
        return subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(code)],
            cwd=tmp_path,
            env=environment(FAIRSEQ_COMPAT_DISABLE=without, **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture(scope="session")
def fork_server() -> Iterator[subprocess.Popen[str]]:
    """The running `fork_server.py`."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        yield server
        assert server.stdin
        server.stdin.close()


@pytest.fixture
def python(tmp_path: Path, fork_server: subprocess.Popen[str]) -> Callable[..., Process]:
    """As `bare_python`, but PyTorch is imported already (fairseq is not), which saves most of the time."""

    def run(code: str, *, without: str = "", **variables: str) -> Process:
        assert fork_server.stdin and fork_server.stdout
        variables = environment(FAIRSEQ_COMPAT_DISABLE=without, **variables)
        request = {"code": textwrap.dedent(code), "folder": str(tmp_path), "environment": variables}
        print(json.dumps(request), file=fork_server.stdin, flush=True)
        return subprocess.CompletedProcess("", **json.loads(fork_server.stdout.readline()))

    return run


@pytest.fixture(scope="session")
def fairseq_program() -> Callable[..., Process]:
    """Runs one of the environment's programs (`fairseq-train`, `torchrun`) in a folder."""

    def run(
        name: str, *arguments: str, folder: Path, without: str = "", text: str = "", **variables: str
    ) -> Process:
        return subprocess.run(
            [str(Path(sys.executable).parent / name), *arguments],
            cwd=folder,
            env=environment(FAIRSEQ_COMPAT_DISABLE=without, **variables),
            input=text,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture(scope="session")
def reversed_words(tmp_path_factory: pytest.TempPathFactory, fairseq_program: Callable[..., Process]) -> Path:
    """A folder with a binarised corpus in `bin`: sentences of 20 words and their reversals."""
    folder = tmp_path_factory.mktemp("reversed-words")
    generator = random.Random(1)
    for split, count in (("train", 200), ("valid", 20), ("test", 20)):
        sentences = [
            [f"w{generator.randrange(20)}" for _ in range(generator.randint(2, 8))] for _ in range(count)
        ]
        for language, step in (("a", 1), ("b", -1)):
            lines = "".join(" ".join(sentence[::step]) + "\n" for sentence in sentences)
            (folder / f"{split}.{language}").write_text(lines)
    process = fairseq_program(
        "fairseq-preprocess", "--source-lang", "a", "--target-lang", "b", "--joined-dictionary",
        "--trainpref", "train", "--validpref", "valid", "--testpref", "test", "--destdir", "bin",
        folder=folder,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return folder
