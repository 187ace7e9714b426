"""The fault campaign of `make faults`: commands are killed, run out of disk, and must end with the same bytes.

    python tests/faults/campaign.py [--seed N] [--kills N] [--writes N] [--only JOB ...] [--output FILE]

Each job is a command in a folder of its own. It is run once as it is; then again and again with one fault each, and
after each the same command is repeated until it ends well. What the folder then holds must be what the first run left.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file

from rskip.machine.environment import describe_environment
from tests.files.file_server import FileHandler, FileServer

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "study/results/robustness/faults.md"
MODEL = "transformer_tiny_2rskip_ln.multi30k.en-de"
CUTS = ("before the first byte", "twice", "after 100,000 bytes each time", "server busy")
SECONDS = 300  # after which a command counts as hanging
ATTEMPTS = 40  # of repeating a command while what was left of the killed one still runs

RECIPE = """\
# Made by tests/faults/campaign.py.
kind: translation
description: a training of seconds
corpus: numbers-en-de
prepare: {pairs: 300, size: 60}
train:
  arch: transformer_rskip_ln_tiny
  encoder-layers: 1
  decoder-layers: 1
  share-all-embeddings: true
  optimizer: adam
  lr: 4e-3
  lr-scheduler: polynomial_decay
  total-num-update: 24
  warmup-updates: 4
  criterion: rskip_label_smoothed_cross_entropy
  max-tokens: 512
  max-epoch: 2
average: {last: 2}
generate: {beam: 2, lenpen: 1.0, max-tokens: 8000}
evaluate: {split: valid}
"""

# What Python raises ends these two as it ends a command.
DOWNLOAD = f"""
import sys
from pathlib import Path
from rskip.zoo.files import model_folder
from rskip.zoo.registry import find_model, read_registry
try:
    model_folder(find_model(read_registry(), {MODEL!r}), root=Path())
except (OSError, ValueError) as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""

VISION = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.vision.test_training_resume import LOOP, SETTINGS, load_noise
from rskip.vision.training import TrainingSettings, train
LOOP.load_dataset = load_noise
settings = TrainingSettings(**{**SETTINGS, "iterations": 40, "milestones": [30]})
try:
    train(settings, folder=Path("run"), seed=5, device="cpu")
except (OSError, ValueError) as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


class Job(NamedTuple):
    """A command that can be repeated.

    :param words: what Python is given.
    :param prepare: makes the folder that it is run in.
    :param content: what it makes there, as something to compare.
    :param kills: its share of the campaign's kills.
    :param network: whether it has one to be cut.
    """

    words: list[str]
    prepare: Callable[[Path], None]
    content: Callable[[Path], Any]
    kills: int
    network: bool = False


@dataclass
class Case:
    """One fault, and how it ended: `problem` is empty where it was survived."""

    job: str
    fault: str
    detail: str
    interrupted: bool
    problem: str


def sums(*patterns: str) -> Callable[[Path], dict[str, str]]:
    """Sums of the files that the patterns name."""

    def content(folder: Path) -> dict[str, str]:
        files = sorted({path for each in patterns for path in folder.glob(each) if path.is_file()})
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    return content


def tensors(path: Path) -> dict[str, str]:
    """Sums of a checkpoint's weights: the file beside them says how long it took."""
    if path.suffix == ".safetensors":
        model = load_file(path)
    else:
        from rskip.checkpoint import read_checkpoint

        model = dict(read_checkpoint(path).model)
    return {name: hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest() for name, value in model.items()}


def trained(folder: Path) -> Any:
    record = json.loads((folder / "results/tiny/1.json").read_text())
    curve = [{key: point[key] for key in point if "second" not in key} for point in record["curve"]]
    return tensors(folder / "runs/tiny/1/averaged.pt"), record["metrics"], curve


def nothing(folder: Path) -> None:
    """The job needs no file."""


def write_recipe(folder: Path) -> None:
    (folder / "recipes").mkdir()
    (folder / "recipes/tiny.yaml").write_text(RECIPE)


def write_text(folder: Path) -> None:
    nouns, verbs = ("dog", "man", "child", "woman", "girl"), ("runs", "sleeps", "eats", "swims", "plays")
    lines = [f"A {nouns[n % 5]} {verbs[n // 5 % 5]} with {n % 7 + 2} people in the snow.\n" for n in range(160)]
    (folder / "in.en").write_text("".join(lines))


def published_project(reference: Path) -> Callable[[Path], None]:
    """The project that the training left, ready to be published."""

    def prepare(folder: Path) -> None:
        shutil.copytree(reference, folder, dirs_exist_ok=True)

    return prepare


def jobs(scratch: Path) -> dict[str, Job]:
    rskip = ["-m", "rskip"]
    model = str(ROOT / "checkpoints/multi30k_en_de/2rskip_ln")
    prepare = [*rskip, "prepare", "numbers-en-de", "--pairs", "2000", "--bpe-size", "80", "--workers", "2"]
    translate = [*rskip, "translate", "--model", model, "in.en", "--output", "out.de", "--resume"]
    return {
        "download": Job(["-c", DOWNLOAD], nothing, sums("hub/**/*"), 15, network=True),
        "translate": Job(
            [*translate, "--buffer-size", "10", "--beam", "2", "--workers", "2"], write_text, sums("out.de*"), 12
        ),
        "vision train": Job(
            ["-c", VISION, str(ROOT)], nothing, lambda folder: tensors(folder / "run/model.safetensors"), 8
        ),
        "prepare": Job([*prepare, "--output", "data"], nothing, sums("data/**/*"), 8),
        "train": Job([*rskip, "run", "recipes/tiny.yaml"], write_recipe, trained, 3),
        "publish": Job(
            [*rskip, "zoo", "publish", "tiny", "--variant", "tiny"],
            published_project(scratch / "train" / "whole"),
            sums("checkpoints.json", "checkpoints/**/*"),
            4,
        ),
    }


class Slow:
    """What a handler writes to, at a few MB a second, so that a kill finds a download under way."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, content: bytes) -> int:
        for start in range(0, len(content), 1 << 16):
            self.file.write(content[start : start + (1 << 16)])
            time.sleep(0.02)
        return len(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@contextlib.contextmanager
def file_server(scratch: Path) -> Iterator[Any]:
    """The tests' server of files, slowed down, with the published model."""

    class Handler(FileHandler):
        def setup(self) -> None:
            super().setup()
            self.wfile = Slow(self.wfile)

    (scratch / "served").mkdir()
    (scratch / "served" / MODEL).symlink_to(ROOT / "checkpoints/multi30k_en_de/2rskip_ln")
    with FileServer(scratch / "served") as server:
        server.RequestHandlerClass = Handler
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class Campaign:
    """Runs the jobs' faults one after the other, and keeps how they ended."""

    def __init__(self, scratch: Path, server: Any, seed: int) -> None:
        self.scratch, self.server, self.random = scratch, server, random.Random(seed)
        self.cases: list[Case] = []
        self.library = scratch / "faulty.so"
        source = Path(__file__).with_name("faulty.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, source, "-ldl"], check=True)

    def environment(self, folder: Path, fault: str = "") -> dict[str, str]:
        own = {name: str(folder) for name in ("HOME", "RSKIP_DATA", "TORCH_HOME")}
        own |= {"RSKIP_HUB_MIRROR": self.server.url, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        if fault:
            own |= {"LD_PRELOAD": str(self.library), "FAULT": fault, "FAULT_FOLDER": str(folder)}
            own["FAULT_COUNT"] = f"{folder}.writes"
        return {**os.environ, **own}

    def start(self, job: Job, folder: Path, fault: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *job.words],
            cwd=folder,
            env=self.environment(folder, fault),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> tuple[int | None, str]:
        """Exit status and last line of stderr; None for one that hung."""
        try:
            error = process.communicate(timeout=SECONDS)[1]
        except subprocess.TimeoutExpired:
            stop_group(process)
            return None, "hangs"
        lines = error.strip().splitlines()
        if "Traceback (most recent call last)" in error:
            return process.returncode, f"traceback: {lines[-1]}"
        return process.returncode, lines[-1] if lines else ""

    def folder_of(self, name: str, job: Job, number: int | str) -> Path:
        folder = self.scratch / name.replace(" ", "_") / str(number)
        folder.mkdir(parents=True)
        job.prepare(folder)
        return folder

    def repeated(self, job: Job, folder: Path) -> str:
        """Repeats the command until it ends well; what is wrong where it doesn't."""
        for _ in range(ATTEMPTS):
            status, said = self.finish(self.start(job, folder))
            if status == 0:
                return ""
            if status != 2 or said.startswith("traceback"):
                return f"repeated: status {status}: {said}"
            time.sleep(0.5)  # what the killed one left behind still holds its lock
        return f"repeated {ATTEMPTS} times: {said}"

    def settle(self, name: str, job: Job, folder: Path, whole: Any, case: Case) -> None:
        """Repeats the command after a fault, and compares what it made with what it makes undisturbed."""
        case.problem = case.problem or self.repeated(job, folder)
        if not case.problem and job.content(folder) != whole:
            case.problem = "other bytes at the end"
        self.cases.append(case)
        print(f"{name}: {case.fault} {case.detail}: {case.problem or 'survived'}", flush=True)
        if not case.problem:
            shutil.rmtree(folder)

    def kill(self, name: str, job: Job, whole: Any, seconds: float, count: int) -> None:
        for number in range(count):
            folder, everyone = self.folder_of(name, job, f"kill{number}"), number % 2 == 1
            after, process = self.random.uniform(0.1, seconds), self.start(job, folder)
            time.sleep(after)
            interrupted = process.poll() is None
            if interrupted:
                (os.killpg if everyone else os.kill)(process.pid, signal.SIGKILL)
            process.wait()  # children may go on, and hold stderr open
            fault = "SIGKILL of the group" if everyone else "SIGKILL of the parent"
            case = Case(name, fault, f"after {after:.1f} of {seconds:.1f} s", interrupted, "")
            self.settle(name, job, folder, whole, case)
            stop_group(process)

    def under(
        self, name: str, job: Job, whole: Any, label: str, fault: str, *, detail: str = "", must_fail: bool
    ) -> None:
        """One run with the preloaded library's fault, then without."""
        folder = self.folder_of(name, job, fault.replace(":", ""))
        status, said = self.finish(self.start(job, folder, fault))
        problem = ""
        if status not in (0, 2) or said.startswith("traceback"):
            problem = f"status {status}: {said}"
        elif status == 0 and must_fail:
            problem = "it didn't notice"
        elif status == 0 and job.content(folder) != whole:
            problem = "status 0 and other bytes"
        self.settle(name, job, folder, whole, Case(name, label, detail, status != 0, problem))

    def full_disk(self, name: str, job: Job, whole: Any, count: int) -> None:
        folder = self.folder_of(name, job, "counted")
        self.finish(self.start(job, folder, f"full:{2**62}"))
        writes = int.from_bytes(folder.with_name("counted.writes").read_bytes()[:8], sys.byteorder)
        shutil.rmtree(folder)
        for number in sorted({round(1 + (writes - 1) * n / max(count - 1, 1)) for n in range(count)}):
            detail = f"from write {number} of {writes}"
            self.under(name, job, whole, "full disk", f"full:{number}", detail=detail, must_fail=False)

    def two_at_once(self, name: str, job: Job, whole: Any) -> None:
        folder = self.folder_of(name, job, "two")
        ends = [self.finish(process) for process in [self.start(job, folder), self.start(job, folder)]]
        bad = [f"status {end}: {said}" for end, said in ends if end not in (0, 2) or said.startswith("traceback")]
        problem = "; ".join(bad) or ("" if any(end == 0 for end, _ in ends) else f"neither ended well: {ends}")
        self.settle(name, job, folder, whole, Case(name, "two at once", "", any(end for end, _ in ends), problem))

    def cut_network(self, name: str, job: Job, whole: Any) -> None:
        for number, cuts in enumerate(([0], [1000, 3_000_000], [100_000] * 60, [503] * 60)):
            folder = self.folder_of(name, job, f"cut{number}")
            self.server.faults = [503 if cut == 503 else ("cut", cut) for cut in cuts]
            status, said = self.finish(self.start(job, folder))
            self.server.faults = []
            fine = status in (0, 2) and not said.startswith("traceback")
            case = Case(name, "cut network", CUTS[number], status != 0, "" if fine else f"status {status}: {said}")
            self.settle(name, job, folder, whole, case)

    def run(self, name: str, job: Job, kills: int, writes: int) -> None:
        folder = self.folder_of(name, job, "whole")
        start = time.monotonic()
        status, said = self.finish(self.start(job, folder))
        seconds = time.monotonic() - start
        assert status == 0, f"{name}: {said}"
        whole = job.content(folder)
        assert whole, name
        again = self.folder_of(name, job, "again")
        assert self.finish(self.start(job, again))[0] == 0 and job.content(again) == whole, f"{name} varies by itself"
        shutil.rmtree(again)
        self.kill(name, job, whole, seconds, kills)
        self.full_disk(name, job, whole, writes)
        self.under(name, job, whole, "read-only folder", "readonly", must_fail=True)
        self.under(name, job, whole, "jumping clock", "clock", must_fail=False)
        self.two_at_once(name, job, whole)
        if job.network:
            self.cut_network(name, job, whole)


def stop_group(process: subprocess.Popen[str]) -> None:
    """Ends what is left of a command: its session has no other processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def summary(cases: list[Case], seed: int) -> dict[str, Any]:
    """What study/results/robustness/faults.json has of a job's cases."""
    environment = describe_environment()
    machine, versions = environment["machine"], environment["packages"]
    cells = {}
    for fault in sorted({case.fault for case in cases}):
        of = [case for case in cases if case.fault == fault]
        survived, interrupted = sum(not case.problem for case in of), sum(case.interrupted for case in of)
        cells[fault] = {"tried": len(of), "survived": survived, "interrupted": interrupted}
    failed = [case for case in cases if case.problem]
    return {
        "faults": cells,
        "problems": [f"{case.fault}{case.detail and ' '}{case.detail}: {case.problem}" for case in failed],
        "on": f"seed {seed}; {machine['cpu']}, {machine['cores']} cores; Python {versions['python']}, "
        f"torch {versions['torch']}",
    }


def report(done: dict[str, dict[str, Any]]) -> str:
    """The table of jobs and faults, and every fault that was not survived."""
    faults = sorted({fault for job in done.values() for fault in job["faults"]})
    lines = [
        "# Faults",
        "",
        "Made by `make faults` (tests/faults/campaign.py): a command is disturbed, then repeated until it ends well.",
        "Survived is what then has the same bytes as an undisturbed run (of a training: the same weights, scores and",
        "curve), with no traceback, and nothing that took over five minutes. A cell: survived of tried (of which",
        "the command was interrupted, or refused).",
        "",
        *sorted({f"{job['on'][0].upper()}{job['on'][1:]}." for job in done.values()}),
        "",
        "| | " + " | ".join(faults) + " |",
        "| --- |" + " --- |" * len(faults),
    ]
    for name, job in done.items():
        cells = [job["faults"].get(fault) for fault in faults]
        shown = [f"{each['survived']} of {each['tried']} ({each['interrupted']})" if each else "" for each in cells]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    each = [cell for job in done.values() for cell in job["faults"].values()]
    lines += ["", f"{sum(cell['survived'] for cell in each)} of {sum(cell['tried'] for cell in each)} survived."]
    lines += [f"- {name}, {problem}" for name, job in done.items() for problem in job["problems"]]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the kills' times")
    parser.add_argument("--kills", type=int, default=50, help="of all jobs together")
    parser.add_argument("--writes", type=int, default=8, help="a job's writes that find the disk full, evenly chosen")
    parser.add_argument(
        "--only", nargs="+", metavar="JOB", help="prepare, translate, download, ...; of the others the report stays"
    )
    parser.add_argument("--output", type=Path, default=REPORT, help="and NAME.json beside it")
    options = parser.parse_args()
    if options.only and "publish" in options.only and "train" not in options.only:
        parser.error("publish wants what train leaves: --only train publish")
    numbers = options.output.with_suffix(".json")
    done = json.loads(numbers.read_text(encoding="utf-8")) if options.only and numbers.exists() else {}
    scratch = tempfile.TemporaryDirectory(prefix="rskip-faults-", ignore_cleanup_errors=True)
    with scratch as folder, file_server(Path(folder)) as server:
        campaign, known = Campaign(Path(folder), server, options.seed), jobs(Path(folder))
        total = sum(job.kills for job in known.values())
        for name, job in known.items():
            if options.only is None or name in options.only:
                before = len(campaign.cases)
                campaign.run(name, job, round(job.kills * options.kills / total), options.writes)
                done[name] = summary(campaign.cases[before:], options.seed)
                done = {name: done[name] for name in known if name in done}
                numbers.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
                options.output.write_text(report(done), encoding="utf-8")
    print(options.output.read_text(encoding="utf-8"))
    return any(case.problem for case in campaign.cases)


if __name__ == "__main__":
    sys.exit(main())
