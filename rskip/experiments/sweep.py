"""Does runs as tasks of Ray, on this machine or a cluster: a recipe's missing runs, or those of `rskip compare`.

Each task is a command, such as `rskip run --commands` prints. If its machine or process dies, the run is started again
elsewhere, from its last checkpoint in the shared folder. Its lock ensures that only one attempt at a time works on it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rskip.experiments.recipe import Recipe, Resources
from rskip.experiments.runner import check_runs, missing_runs, run_words
from rskip.extras import extra
from rskip.files.folder_lock import read_owner
from rskip.machine.cores import available_cores
from rskip.records import read_record
from rskip.settings.check import convert
from rskip.settings.kinds import Whole
from rskip.tasks.process import end_of
from rskip.tasks.run import Run

_LOOKS = 10  # attempts, a second apart, before a new file of another machine counts as missing
_PREFIX = re.compile("rskip [a-z]+: error: ")
_ATTEMPTS = 5  # further attempts at a run whose machine or process was killed
_POLL_SECONDS = 2.0
_QUIET = 60.0  # minimum seconds between two lines of a run
_TAIL = 4096  # bytes of a log that its last line is in
_STOP_SECONDS = 40.0  # for interrupted trainings to save
_CONNECT_SECONDS = 10.0
_OBJECT_STORE = 100 * 2**20  # bytes; the tasks exchange nothing
_LOG = Path("runs", "ray.log")
_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}  # for a Ray that is started here


class RunKilled(RuntimeError):
    """Raised if the command was killed, because memory ran out or by a worker of Ray that ended."""


def work(folder: str, marker: str, words: Sequence[str], log: str, variables: Mapping[str, str]) -> str:
    """A task of Ray: runs a command to its end, and returns its error in one line, or "".

    :param folder, marker: as for `problem_here`.
    :param words: words of the command after `rskip`.
    :param log: log of the command, in the folder.
    :param variables: additional environment variables.
    :raises RunKilled: the command was killed, and may be started again.
    """
    if problem := problem_here(folder, marker):
        return problem
    try:
        os.chdir(folder)
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
        status, reason = end_of(["rskip", *words], log=Path(log), environment=environment)
    except OSError as error:
        return f"{socket.gethostname()}: {error}"
    if status == -signal.SIGKILL:
        raise RunKilled(f"killed on {socket.gethostname()}: {reason}")
    ending = f"killed by signal {-status}: " if status < 0 else ""
    return "" if status == 0 else f"{ending}{_PREFIX.sub('', reason)}"


def problem_here(folder: str, marker: str) -> str:
    """The reason why this machine can't take part, or "".

    :param folder: the project's folder, with the same path on all machines; `marker`: a file in it.
    """
    for look in range(_LOOKS):
        time.sleep(min(look, 1))
        if Path(folder, marker).exists():
            return ""
    return (
        f"{socket.gethostname()} doesn't see {folder}, or sees other files in it than this machine: put the project's "
        "folder on a file system that all machines share under one path"
    )


@dataclass(frozen=True, kw_only=True)
class SweepJob:
    """A run that Ray does.

    :param name: in the lines that show the progress.
    :param folder: the folder that the run locks; `log`: the file of its output.
    :param words: the words of its command after `rskip`, for a number of GPUs.
    :param result: describes the finished run.
    :param resources: what it needs.
    """

    name: str
    folder: Path
    log: Path
    words: Callable[[int], Sequence[str]]
    result: Callable[[], str]
    resources: Resources = Resources()


def run_sweep(
    recipes: Sequence[Recipe],
    *,
    seeds: Sequence[int],
    address: str,
    overrides: Sequence[str] = (),
    mirror: str | None = None,
    gpus: int | None = None,
) -> list[str]:
    """Has Ray do each recipe with each seed that has no record yet, and shows the progress; see `run_jobs`.

    :param overrides: the overrides of the loaded recipes.
    """
    if gpus is not None:
        convert(gpus, Whole, name="gpus")
    missing = missing_runs(recipes, seeds=seeds, mirror=mirror, gpus=gpus or 0)

    def words(recipe: Recipe, seed: int, gpus: int) -> list[str]:
        return run_words(recipe, seed, overrides=overrides, mirror=mirror, gpus=gpus)[1:]

    jobs = [
        SweepJob(
            name=f"{run.name}, seed {run.seed}",
            folder=run.folder.path,
            log=run.folder.path / "run.log",
            words=partial(words, recipe, run.seed),
            result=partial(_result, recipe, run),
            resources=recipe.own.resources,
        )
        for recipe, run in missing
    ]
    check = lambda gpus: check_runs([(recipe, replace(run, gpus=gpus)) for recipe, run in missing])  # noqa: E731
    return run_jobs(jobs, address=address, gpus=gpus, check=check)


def run_jobs(
    jobs: Sequence[SweepJob], *, address: str, gpus: int | None = None, check: Callable[[int], None] = lambda gpus: None
) -> list[str]:
    """Has Ray do the runs, in parallel, and shows the progress.

    :param address: HOST:PORT of a cluster's head node, or "auto" for this machine's cluster; "": a new Ray on this
        machine, or the cluster that $RAY_ADDRESS names.
    :param gpus: GPUs per run, 0 for the CPU; None: one if the cluster has any, or the share in `resources`.
    :param check: checks, before any work, whether runs with so many GPUs are possible.
    :returns: one line for each run that failed.
    :raises ValueError, OSError: a run is wrong, Ray is missing or doesn't answer, no machine has what a run needs,
        or one doesn't see this folder.
    """
    if not jobs:
        print("all runs are finished")
        return []
    print(f"{len(jobs)} runs; Ray's log: {_LOG}", flush=True)
    mark = uuid.uuid4().hex
    with _ray(address) as ray:
        if gpus is None:
            gpus = min(int(ray.cluster_resources().get("GPU", 0)), 1)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        needs = [_needs(job.name, job.resources, gpus, nodes) for job in jobs]
        check(gpus)
        Path("runs").mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir="runs", prefix=".sweep.") as file:
            marker = str(Path("runs", Path(file.name).name))  # other machines see it only if they share this folder
            folder = str(Path.cwd())
            _check_nodes(ray, folder, marker)
            shared = {name: value for name, value in os.environ.items() if name.startswith("RSKIP_")}
            tasks = {}
            for job, resources in zip(jobs, needs, strict=True):
                variables = {**shared, "RSKIP_JOB": mark, "OMP_NUM_THREADS": str(resources["num_cpus"])}
                task = ray.remote(max_retries=_ATTEMPTS, retry_exceptions=[RunKilled], **resources)(work)
                tasks[task.remote(folder, marker, job.words(gpus), str(job.log), variables)] = job
            return _watch(ray, tasks, mark=mark)


def _watch(ray: Any, tasks: dict[Any, SweepJob], *, mark: str) -> list[str]:
    """Prints what the runs are doing until all have ended: a line per run at its end, and at most one per minute."""
    failures, open_tasks = list[str](), list(tasks)
    printed: dict[str, tuple[str, float]] = {}  # a run's last line, and when
    try:
        while open_tasks:
            ended, open_tasks = ray.wait(open_tasks, num_returns=len(open_tasks), timeout=0)
            for reference in ended:
                job = tasks[reference]
                try:
                    problem = ray.get(reference)
                except ray.exceptions.RayError as error:
                    problem = f"given up: {_first_line(getattr(error, 'cause', error))}"
                if problem:
                    failures.append(f"{job.name}: {problem}")
                print(f"{job.name}: {f'failed: {problem}' if problem else job.result()}", flush=True)
            for job in (tasks[reference] for reference in open_tasks):
                line, (before, when) = now_doing(job.folder, job.log, job=mark), printed.get(job.name, ("", -_QUIET))
                if line not in (None, before) and time.monotonic() >= when + _QUIET:
                    print(f"{job.name}: {line}", flush=True)
                    printed[job.name] = str(line), time.monotonic()
            if open_tasks:
                time.sleep(_POLL_SECONDS)  # where signals come: within its own calls Ray makes another exit of them
    except BaseException:
        for reference in open_tasks:
            ray.cancel(reference)  # interrupts the task, which has its training save
        ray.wait(open_tasks, num_returns=len(open_tasks), timeout=_STOP_SECONDS)
        raise
    return failures


def now_doing(folder: Path, log: Path, *, job: str) -> str | None:
    """The last line that a run printed, and where it runs; None where no process of the job works on it.

    :param job: as in `Owner.job`.
    """
    owner = read_owner(folder)
    if owner is None or owner.job != job:
        return None
    attempt = f", attempt {owner.attempt}" if owner.attempt > 1 else ""
    return f"{' '.join(_last_line(log).split()) or 'begins'}  ({owner.host}{attempt})"


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return next((line for line in reversed(lines) if line.strip()), "")


def _result(recipe: Recipe, run: Run[Any]) -> str:
    path = recipe.record_path(run.seed)
    if not path.exists():  # NFS shows it later
        return "done"
    record = read_record(path)
    if record.diverged:
        return "done: the training diverged"
    minutes = f"{record.training['seconds'] / 60:.1f} min of training"
    for metric, heading, _ in recipe.task.shown:
        if metric in record.metrics:  # data of fairseq-preprocess have no sacreBLEU
            return f"done: {heading} {record.metrics[metric]:.2f}, {minutes}"
    return f"done: {minutes}"


def _needs(name: str, own: Resources, gpus: int, nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The resources of a run. Default cores: the share of the run's GPUs, or all of the smallest machine.

    :raises ValueError: no machine has so much.
    """
    share = own.gpus if gpus == 1 else float(gpus)
    able = [node for node in nodes if node.get("GPU", 0) >= share and node.get("CPU", 0) >= (own.cores or 1)]
    if not able:
        wanted = f"{share:g} GPUs and {own.cores or 1} cores" if share else f"{own.cores or 1} cores"
        has = "; ".join(f"{node.get('GPU', 0):g} GPUs, {node.get('CPU', 0):g} cores" for node in nodes)
        raise ValueError(f"{name} needs {wanted} on one machine, but the cluster has: {has}")
    cores = own.cores or min(int(node["CPU"] * (share / node["GPU"] if share else 1)) or 1 for node in able)
    return {"num_cpus": cores, **({"num_gpus": share} if share else {})}


def _check_nodes(ray: Any, folder: str, marker: str) -> None:
    """:raises ValueError: a machine can't take part."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    looks = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(num_cpus=0, scheduling_strategy=there)(problem_here)
            looks[task.remote(folder, marker)] = node["NodeManagerHostname"]
    for reference, host in looks.items():
        try:
            problem = ray.get(reference)
        except ray.exceptions.RayError as error:
            problem = f"{host}: {_first_line(error)}"
        if problem:
            raise ValueError(problem)


@contextlib.contextmanager
def _ray(address: str) -> Iterator[Any]:
    """Ray, connected, with its own messages in a file.

    :raises ValueError: likewise OSError: it isn't installed, or nothing answers.
    """
    for name, value in _RAY.items():
        os.environ.setdefault(name, value)
    with extra("ray", what="--ray"):
        import ray
    address = address or os.environ.get("RAY_ADDRESS", "local")
    own: dict[str, Any] = {}
    if address == "local":
        own = {"num_cpus": available_cores(), "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    elif address != "auto":
        _check_address(address)
    on_termination = signal.getsignal(signal.SIGTERM)
    with _errors_in(_LOG) as said:
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False, **own)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            at = "on this machine" if address in ("auto", "local") else f"at {address}"
            reason = _first_line(error)
            if "InvalidAuthToken" in f"{said()} {error}":
                reason = "it expects a token other than $RAY_AUTH_TOKEN or ~/.ray/auth_token (RAY_AUTH_MODE=token)"
            raise ValueError(f"can't use Ray {at}: {reason}") from None
        try:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, on_termination)  # Ray has put its own there, which aborts
            yield ray
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _errors_in(path: Path) -> Iterator[Callable[[], str]]:
    """Appends what goes to stderr to a file, C++'s too; what it gives reads what that is."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8", buffering=1) as log, contextlib.ExitStack() as stack:
        start = path.stat().st_size
        before = os.dup(2)
        stack.callback(os.close, before)
        stack.callback(os.dup2, before, 2)
        os.dup2(log.fileno(), 2)
        stack.enter_context(contextlib.redirect_stderr(log))
        yield lambda: path.read_bytes()[start:].decode(errors="replace")


def _check_address(address: str) -> None:
    """:raises ValueError: likewise OSError: no address, or nothing answers there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError(f"--ray is {address}: expected HOST:PORT of the cluster's head node, auto, or nothing")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise OSError(f"Ray doesn't answer at {address} ({error}): start its head node, or give another") from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
