"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.files.file_server import FileServer

Process = subprocess.CompletedProcess[str]
Environment = Callable[..., dict[str, str]]
ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent

# What the processes that are forked from have imported: what fairseq takes most of its time for; and fairseq, after
# torch._dynamo, which the first optimiser imports, and the packages of rskip that import much, whose `fairseq_plugin`
# is left to --user-dir.
TORCH = ["torch.distributed", "torch.nn.parallel", "torch.quantization", "hydra", "sacrebleu"]
FAIRSEQ = ["torch._dynamo", "sacremoses", "rskip.checkpoint", "rskip.generation", "fairseq.models", *(
    f"fairseq_cli.{name}" for name in ("preprocess", "train", "generate", "interactive", "validate", "eval_lm")
)]  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without the garbage collector, which doesn't search them later either: half a million objects,
    all of which stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves files with slow tests to the front: the last files to run are then short, and no process waits long."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def collected() -> Iterator[None]:
    """Has everything collected at exit, also what was frozen: onnx's C++ reports what is not."""
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
    import torch

    from tests.emulated_device import emulated_cuda

    if not hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
        pytest.skip("PyTorch 2.6 has no copy to a device that is not there")
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
    """`unpacked_cifar("cifar10")`: the folder that holds cifar-10-batches-py, of the real images. One of pytest's
    processes unpacks them for all."""

    @cache
    def unpacked(dataset: str) -> Path:
        from rskip.files.lock import one_at_a_time

        if not (packed := list((shared / "data" / dataset).glob("*.xz"))):
            pytest.skip(f"needs {dataset} in {shared}/data")
        own = tmp_path_factory.getbasetemp()
        parent = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / dataset
        folder = parent / {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}[dataset]
        parent.mkdir(exist_ok=True)
        with one_at_a_time(folder):
            if not folder.exists():
                partial = Path(tempfile.mkdtemp(dir=parent))
                for path in packed:
                    with lzma.open(path) as file, (partial / path.stem).open("wb") as content:
                        shutil.copyfileobj(file, content)
                partial.rename(folder)
        return parent

    return unpacked


@pytest.fixture(scope="session")
def drawn():
    """Draws an image of some blocks of colour."""
    import numpy as np
    from PIL import Image

    def drawn(seed=0, size=(60, 40)):
        colours = np.random.default_rng(seed).integers(0, 256, size=(4, 6, 3), dtype=np.uint8)
        return Image.fromarray(colours).resize(size, Image.Resampling.NEAREST)

    return drawn


@pytest.fixture
def pictures(tmp_path, drawn):
    """A folder of five drawn pictures."""
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    for number, name in enumerate(["b.jpg", "a.png", "c.JPG", "more/a.png", "d.webp"]):
        drawn(number).save(folder / name)
    return folder


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium, which reaches no host but this one."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs the group dev")
    programs = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    program, driver = next(filter(None, programs), None), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser: install chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1200,900",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Any]:
    """`make_record(seed=2, metrics={...})`: a record of a translation run like any other but for what is given."""
    import msgspec

    from rskip.records import Record, record_path

    def make(**changes: Any) -> Record:
        content: dict[str, Any] = {
            "recipe": "numbers", "kind": "translation", "seed": 1,
            "config": {"kind": "translation", "corpus": "numbers-en-de", "train": {"lr": 0.005}}, "overrides": {},
            "metrics": {"sacrebleu": 38.0, "chrf": 60.0}, "signatures": {"sacrebleu": "nrefs:1|tok:13a"},
            "curve": [{"epoch": 1, "valid_loss": 4.0}], "training": {"seconds": 600.0, "pieces": 1},
            "parameters": 1037568, "checkpoint_sha256": "0" * 64, "data": {}, "packages": {"torch": "2.0"},
            "machine": {"cpu": "Zuse Z4", "cores": 2, "threads": 2, "gpu": None}, "date": "2026-01-01T00:00:00+00:00",
        }  # fmt: skip
        record = Record(**{**content, **changes})
        return msgspec.structs.replace(record, path=record_path(record.run, record.seed))

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
    all patches too unless `fairseq=False` or `without` names patches to leave out. A tenth of a process's own time.
    `ranks=2`: two at once, as torchrun starts them."""
    with ExitStack() as servers:

        @cache
        def server() -> subprocess.Popen[str]:
            command = [sys.executable, str(ROOT / "tests" / "fork_server.py"), *TORCH]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True)
            servers.enter_context(process)
            servers.callback(process.terminate)  # a data loader's worker may hold its stdin open
            return process

        def run(
            *arguments: str, folder: Path, fairseq: bool = True, without: str = "", text: str = "", ranks: int = 0,
            **variables: str,
        ) -> Process:  # fmt: skip
            process = server()
            request = {
                "arguments": arguments,
                "folder": str(folder),
                "environment": environment(FAIRSEQ_COMPAT_DISABLE=without, **variables),
                "text": text,
                "ranks": ranks,
                "modules": FAIRSEQ if fairseq and not without else [],
            }
            assert process.stdin and process.stdout
            print(json.dumps(request), file=process.stdin, flush=True)
            return Process(arguments, **json.loads(process.stdout.readline()))

        yield run


@pytest.fixture(scope="session")
def forked_logged(forked: Callable[..., Process]) -> Callable[..., None]:
    """Forks a program as `rskip.tasks.process.run_logged` starts it; tests/tasks/test_process.py has that function."""

    def run(
        command: Sequence[str], *, log: Path, output: Path | None = None, on_poll: Callable[[], None] = lambda: None,
        **_: object,
    ) -> None:  # fmt: skip
        variables = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
        process = forked(str(PROGRAMS / command[0]), *command[1:], folder=Path.cwd(), **variables)
        assert process.returncode == 0, process.stderr[-3000:]
        for path, text in ((output or log, process.stdout), (log, process.stderr)):
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        on_poll()

    return run


@pytest.fixture(scope="session")
def own_process(environment: Environment) -> Callable[..., Process]:
    """Runs one of the environment's programs (`fairseq-train`, `torchrun`) in a folder, as a shell would."""

    def run(name: str, *arguments: str, folder: Path, without: str = "", text: str = "", **variables: str) -> Process:
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
def fairseq_program(forked: Callable[..., Process]) -> Callable[..., Process]:
    """As `own_process`, but forked from a process that has imported fairseq."""

    def run(name: str, *arguments: str, **options: Any) -> Process:
        return forked(str(PROGRAMS / name), *arguments, **options)

    return run


@pytest.fixture(scope="session")
def reversed_words(tmp_path_factory: pytest.TempPathFactory, fairseq_program: Callable[..., Process]) -> Path:
    """A folder with a binarised corpus in `bin`: sentences of 20 words and their reversals."""
    folder = tmp_path_factory.mktemp("reversed-words")
    generator = random.Random(1)
    for split, count in (("train", 200), ("valid", 20), ("test", 20)):
        sentences = [[f"w{generator.randrange(20)}" for _ in range(generator.randint(2, 8))] for _ in range(count)]
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
