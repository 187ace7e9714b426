"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import http.server
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

Process = subprocess.CompletedProcess[str]
Environment = Callable[..., dict[str, str]]
ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent

# What the processes that are forked from have imported: what fairseq takes most of its time for; and fairseq, after
# the packages of rskip that import much, whose `fairseq_plugin` is left to --user-dir.
TORCH = ["torch.distributed", "torch.nn.parallel", "torch.quantization", "hydra", "sacrebleu"]
FAIRSEQ = ["rskip.checkpoint", "rskip.generation", "fairseq.models", *(
    f"fairseq_cli.{name}" for name in ("preprocess", "train", "generate", "interactive", "validate", "eval_lm")
)]  # fmt: skip


gc.disable()  # until the tests are collected: collecting them makes many objects, all of which stay


def pytest_collection_finish() -> None:
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves files with slow tests to the front: the last files to run are then short, and no process waits long."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def collected() -> Iterator[None]:
    """Has everything collected at exit, also what a command froze: onnx's C++ reports what is not."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Leaves PyTorch's threads as they were: with another number sums round otherwise, and a command may set it."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else int(os.environ.get("OMP_NUM_THREADS") or 0)
    yield
    torch = sys.modules.get("torch")
    if torch and before not in (0, torch.get_num_threads()):
        torch.set_num_threads(before)


@pytest.fixture
def emulated_cuda() -> Iterator[Any]:
    """A pretend GPU, `cuda:0`, during the test; gives its counts of calls, bytes and synchronisations."""
    from tests.emulated_device import emulated_cuda

    with emulated_cuda() as counts:
        yield counts


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real corpora that tests read where it is present (RSKIP_SHARED, or ../shared)."""
    folder = Path(os.environ.get("RSKIP_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"needs the corpora in {folder}/data: set RSKIP_SHARED to the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def unpacked_cifar(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`unpacked_cifar("cifar10")`: the folder that holds cifar-10-batches-py, of the real images."""

    @cache
    def unpacked(dataset: str) -> Path:
        if not (packed := list((shared / "data" / dataset).glob("*.xz"))):
            pytest.skip(f"needs {dataset} in {shared}/data")
        parent = tmp_path_factory.mktemp(dataset)
        folder = parent / {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}[dataset]
        folder.mkdir()
        for path in packed:
            with lzma.open(path) as file, (folder / path.stem).open("wb") as content:
                shutil.copyfileobj(file, content)
        return parent

    return unpacked


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Any]:
    """`make_record(seed=2, metrics={...})`: a record of a translation run like any other but for what is given."""
    from rskip.records import Record

    def make(**changes: Any) -> Record:
        content: dict[str, Any] = {
            "recipe": "numbers",
            "run": changes.get("recipe", "numbers"),
            "kind": "translation",
            "seed": 1,
            "config": {"kind": "translation", "corpus": "numbers-en-de", "train": {"lr": 0.005}},
            "overrides": {},
            "metrics": {"sacrebleu": 38.0, "chrf": 60.0},
            "signatures": {"sacrebleu": "nrefs:1|tok:13a"},
            "curve": [{"epoch": 1, "valid_loss": 4.0}],
            "training": {"seconds": 600.0, "pieces": 1},
            "parameters": 1037568,
            "checkpoint_sha256": "0" * 64,
            "data": {},
            "packages": {"torch": "2.0"},
            "machine": {"cpu": "Zuse Z4", "cores": 2, "threads": 2, "gpu": None},
            "date": "2026-01-01T00:00:00+00:00",
        }
        return Record(**{**content, **changes})

    return make


@pytest.fixture(scope="session")
def environment() -> Environment:
    """Gives this process's environment with one thread, all patches on, and the variables that it is called with."""

    def environment(**variables: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "FAIRSEQ_COMPAT_DISABLE"}
        return {**kept, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", **variables}

    return environment


@pytest.fixture(scope="session")
def forked(environment: Environment) -> Iterator[Callable[..., Process]]:
    """Runs `python ARGUMENTS...` in a folder, forked from a process that has PyTorch imported already, and fairseq with
    all patches too unless `fairseq=False` or `without` names patches to leave out. A tenth of a process's own time."""
    with ExitStack() as servers:

        @cache
        def server(fairseq: bool) -> subprocess.Popen[str]:
            command = [sys.executable, str(ROOT / "tests" / "fork_server.py"), *TORCH, *(FAIRSEQ if fairseq else [])]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True)
            servers.enter_context(process)
            servers.callback(lambda: process.stdin and process.stdin.close())
            return process

        def run(
            *arguments: str, folder: Path, fairseq: bool = True, without: str = "", text: str = "", **variables: str
        ) -> Process:
            process = server(fairseq and not without)
            request = {
                "arguments": arguments,
                "folder": str(folder),
                "environment": environment(FAIRSEQ_COMPAT_DISABLE=without, **variables),
                "text": text,
            }
            assert process.stdin and process.stdout
            print(json.dumps(request), file=process.stdin, flush=True)
            return Process(arguments, **json.loads(process.stdout.readline()))

        yield run


@pytest.fixture(scope="session")
def own_process(environment: Environment) -> Callable[..., Process]:
    """Runs one of the environment's programs (`fairseq-train`, `torchrun`) in a folder, as a shell would."""

    def run(
        name: str, *arguments: str, folder: Path, without: str = "", text: str = "", **variables: str
    ) -> Process:
        return subprocess.run(
            [str(PROGRAMS / name), *arguments],
            cwd=folder,
            env=environment(FAIRSEQ_COMPAT_DISABLE=without, **variables),
            input=text,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture(scope="session")
def fairseq_program(forked: Callable[..., Process], own_process: Callable[..., Process]) -> Callable[..., Process]:
    """As `own_process`, which `torchrun` gets; other programs are forked from a process that has imported fairseq."""

    def run(name: str, *arguments: str, **options: Any) -> Process:
        if name == "torchrun":
            return own_process(name, *arguments, **options)
        return forked(str(PROGRAMS / name), *arguments, **options)

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


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 training images and 20 test images in the place of CIFAR-10's, for `rskip analyse`."""
    import torch

    from rskip.vision import subject
    from rskip.vision.data import ImageSet

    def images(dataset: str, data: str | None, split: str, download: bool) -> ImageSet:
        count = {"train": 30, "test": 20}[split]
        generator = torch.Generator().manual_seed(count)
        pixels = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
        labels = torch.randint(10, (count,), generator=generator)
        return ImageSet(pixels, labels, tuple(f"class {number}" for number in range(10)))

    monkeypatch.setattr(subject, "_images", images)


@pytest.fixture
def few_pairs(root: Path, tmp_path: Path) -> Path:
    """A folder of four sentence pairs, binarised with the dictionaries of the published English-German models."""
    from tests.cli.test_inspect import write_side

    folder = tmp_path / "multi30k-en-de"
    folder.mkdir()
    for language in ("en", "de"):
        shutil.copy(root / f"checkpoints/multi30k_en_de_sas/dict.{language}.txt", folder)
    for split in ("train", "valid"):
        write_side(folder, split, "en", [[4, 5, 6, 2], [7, 2], [8, 9, 10, 11, 12, 2], [13, 14, 2]])
        write_side(folder, split, "de", [[15, 2], [16, 17, 18, 19, 2], [20, 21, 22, 2], [23, 24, 2]])
    return folder


@dataclass
class Answer:
    """What a server says to one request, whatever it asks for.

    :param length: the Content-Length; None: that of the body, "": none is sent.
    :param hang: seconds to wait after the body before hanging up.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | str | None = None
    hang: float = 0.0


class FileServer(http.server.ThreadingHTTPServer):
    """Serves a folder.

    Each request takes the next of `faults`: None, an HTTP status, ("cut", bytes after which to hang up) or an Answer.
    `requests` keeps each request's path and Range header, `headers` its headers; `ranges` says whether the server
    gives ranges.
    """

    daemon_threads = True
    Answer = Answer

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), FileHandler)
        self.folder = folder
        self.faults: list[None | int | tuple[str, int] | Answer] = []
        self.requests: list[tuple[str, str | None]] = []
        self.headers: list[dict[str, str]] = []
        self.ranges = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class FileHandler(http.server.BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        name, wanted = self.path.strip("/"), self.headers.get("Range")
        self.server.requests.append((name, wanted))
        self.server.headers.append(dict(self.headers))
        fault = self.server.faults.pop(0) if self.server.faults else None
        path = self.server.folder / urllib.parse.unquote(name)
        if isinstance(fault, int) or (fault is None and not path.is_file()):
            self.send_error(fault or 404)
            return
        answer = fault if isinstance(fault, Answer) else self.answer(path.read_bytes(), wanted, fault)
        self.send_response(answer.status)
        length = len(answer.body) if answer.length is None else answer.length
        for header, value in {"Content-Length": str(length), **answer.headers}.items():
            if value:
                self.send_header(header, value)
        self.end_headers()
        try:
            self.wfile.write(answer.body)
            self.wfile.flush()
        except OSError:  # nobody reads any more
            pass
        time.sleep(answer.hang)

    def answer(self, content: bytes, wanted: str | None, fault: tuple[str, int] | None) -> Answer:
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if start >= len(content) > 0:
            return Answer(b"", 416)
        headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        body = content[start : start + fault[1] if fault else None]
        return Answer(body, 206 if start else 200, headers, length=len(content) - start)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def file_server() -> Iterator[Callable[[Path], FileServer]]:
    """Starts a server of a folder, which ends with the test."""
    with ExitStack() as stack:

        def start(folder: Path) -> FileServer:
            running = stack.enter_context(FileServer(folder))
            thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(running.shutdown)
            return running

        yield start


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of fairseq-preprocess, a script that writes sentence counts and the dictionary that it was given."""
    (tmp_path / "python").mkdir()
    command = tmp_path / "python/fairseq-preprocess"
    command.write_text(
        f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
import struct, sys
from pathlib import Path
after = dict(zip(sys.argv, sys.argv[1:]))
source, target, out = after["--source-lang"], after["--target-lang"], Path(after["--destdir"])
out.mkdir()
for kind in ("train", "valid", "test"):
    prefixes = after[f"--{{kind}}pref"].split(",") if f"--{{kind}}pref" in after else []
    for number, prefix in enumerate(prefixes):
        for language in (source, target):
            count = Path(prefix + "." + language).read_bytes().count(b"\\n")
            header = b"MMIDIDX\\0\\0" + struct.pack("<QBQ", 1, 8, count)
            (out / f"{{kind}}{{number or ''}}.{{source}}-{{target}}.{{language}}.idx").write_bytes(header)
for language in (source, target):
    (out / f"dict.{{language}}.txt").write_bytes(Path(after["--srcdict"]).read_bytes())
"""
    )
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python/python"))
    return command
