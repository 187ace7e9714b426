"""`rskip run --ray` on two machines of which one is killed, and what goes wrong with it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rskip.cli.main import main
from rskip.experiments import sweep
from rskip.experiments.recipe import load_recipe, load_recipes
from rskip.experiments.sweep import RunKilled, work
from rskip.extras import advice
from rskip.files.folder_lock import read_owner
from rskip.translation.data import data_folder
from tests.translation.conftest import RUN_BY_PYTHON

RECIPE = """
kind: translation
corpus: numbers-en-de
prepare: {pairs: 300, size: 80}
train: {arch: transformer_rskip_ln_tiny, max-tokens: 4000, max-epoch: 3, lr: 5e-3}
average: {last: 2}
generate: {beam: 4}
resources: {cores: 1}
variants: {base: , broken: }
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def tiny(fakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder to run in, with the recipe and its corpus. The training of `base` hangs after its first epoch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/tiny.yaml").write_text(RECIPE)
    data = data_folder(load_recipe("recipes/tiny.yaml", variant="base").settings)
    shutil.copytree(fakes / "prepared", tmp_path / data)
    own = {"CHECKPOINT": fakes / "checkpoint.pt", "TRANSLATIONS": fakes / "translations.txt", "HANG": 1}
    for name, value in own.items():
        monkeypatch.setenv(f"FAKE_{name}", str(value))
    return tmp_path


@pytest.fixture
def programs(tiny: Path, fakes: Path) -> Path:
    """The programs of an environment that has Ray, and an rskip with small programs in place of fairseq's."""
    venv.create(tiny / "environment")
    (site,) = tiny.glob("environment/lib/python*/site-packages")
    (site / "outer.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    program = tiny / "environment/bin/rskip"
    python = f"sys.executable = '{fakes}/bin/python'"
    program.write_text(f"{RUN_BY_PYTHON}import sys\n{python}\nfrom rskip.__main__ import run\nsys.exit(run())\n")
    program.chmod(0o755)
    return program.parent


ROOT = Path(__file__).resolve().parents[2]
RAY = {
    "AUTH_MODE": "token", "AUTH_TOKEN": "5" * 64, "USAGE_STATS_ENABLED": "0", "worker_niceness": "0",
    # how soon a machine that is silent counts as dead
    "health_check_initial_delay_ms": "1000", "health_check_period_ms": "500", "health_check_failure_threshold": "3",
}  # fmt: skip
CLUSTER = """
from ray.cluster_utils import Cluster
own = {"object_store_memory": 100 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **own})
nodes = [cluster.add_node(num_cpus=1, wait=False, **own) for _ in range(2)]
print(cluster.address, *(node.all_processes["raylet"][0].process.pid for node in nodes), flush=True)
cluster.remove_node(nodes[int(input())], allow_graceful=False)
print("removed", flush=True)
input()
cluster.shutdown()
"""


@dataclass
class TwoMachines:
    """A Ray of a head node, which takes no run, and two machines that take one each.

    raylets: the process of Ray on each of the two.
    """

    process: subprocess.Popen[str]
    address: str
    raylets: list[int]

    def kill(self, raylet: int) -> None:
        """Ends all processes of Ray on its machine."""
        assert self.process.stdin and self.process.stdout
        print(self.raylets.index(raylet), file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "removed\n"


@pytest.fixture
def machines(programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoMachines]:
    pytest.importorskip("ray")
    for name, value in RAY.items():
        monkeypatch.setenv(f"RAY_{name}", value)
    pipe = subprocess.PIPE
    with subprocess.Popen([programs / "python", "-c", CLUSTER], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        address, *raylets = process.stdout.readline().split()
        try:
            yield TwoMachines(process, address, [int(each) for each in raylets])
        finally:
            process.communicate("0\n\n")


def wait_for(what: Callable[[], Any], seconds: float = 300) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def descendants(process: int) -> list[int]:
    """Of a process, itself among them."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [process, *(each for child in children for each in descendants(int(child)))]


@pytest.mark.slow
def test_a_run_that_is_killed_or_its_machine_goes_on_elsewhere_and_a_failed_one_stops_no_other(
    programs: Path, machines: TwoMachines
) -> None:
    """tests/translation/test_real_run.py has the same with fairseq's programs, on one machine without Ray."""
    run, first = ["run", "recipes/tiny.yaml", "--gpus", "0"], Path("runs/tiny/base/1")
    broken = Path("runs/tiny/broken/1/checkpoints")  # where a folder can't be made
    broken.parent.mkdir(parents=True)
    broken.touch()

    command = [programs / "rskip", *run, "--variants", "*", "--ray", machines.address]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        owner = wait_for(lambda: read_owner(first))
        os.kill(owner.process, signal.SIGKILL)
        wait_for((first / "checkpoints/checkpoint1.pt").exists)
        owner = read_owner(first)
        assert owner is not None and owner.attempt == 2
        working = descendants(owner.process)
        assert len(working) > 1, "the training is one of them"
        worker = parent(owner.process)
        assert os.getpgid(owner.process) == os.getpgid(working[1]) == os.getpgid(worker)
        machines.kill(parent(worker))
        wait_for(lambda: not any(map(is_alive, working)), seconds=30)
        output, errors = driver.communicate(timeout=600)
    finally:
        driver.kill()
    assert driver.returncode == 1
    assert errors.startswith(f"rskip run: error: tiny/broken, seed 1: {broken}: File exists")
    assert errors.count("\n") == 1
    (path,) = Path("results").rglob("*.json")
    record = json.loads(path.read_text())
    assert record["training"]["pieces"] == 2 and [point["epoch"] for point in record["curve"]] == [1, 2, 3]
    last = read_owner(first)
    assert last is not None and last.attempt == 3
    assert output.count(": done: sacreBLEU ") == 1 and output.count(": failed: ") == 1


MINE = "recipes/mine.yaml"


def test_mistakes_are_one_line(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address, message in {
        "127.0.0.1:1": "Ray doesn't answer at 127.0.0.1:1 ([Errno 111] Connection refused): start its head",
        "nonsense": "--ray is nonsense: expected HOST:PORT of the cluster's head node, auto, or nothing",
        "ray://127.0.0.1:1": "--ray is ray://127.0.0.1:1: expected HOST:PORT",
    }.items():
        assert main(["run", MINE, "--ray", address]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"rskip run: error: {message}") and error.count("\n") == 1
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["run", MINE, "--ray"]) == 2
    message = f"--ray needs ray: {advice('ray')}"
    assert capsys.readouterr().err == f"rskip run: error: {message}\n"
    assert main(["run", MINE]) == 0
    capsys.readouterr()
    assert main(["run", MINE, "--ray"]) == 0, "nothing is left to do"
    assert capsys.readouterr().out == "all runs are finished\n"


def test_a_run_gets_the_gpus_and_cores_that_it_needs(project: Path) -> None:
    def needs(gpus: int, *nodes: dict[str, float], resources: str = "gpus=1") -> dict[str, float]:
        (recipe,) = load_recipes(MINE, overrides=[f"resources.{each}" for each in resources.split()])
        return sweep._needs("mine", recipe.own.resources, gpus, nodes)

    small, large, cpu = {"CPU": 16.0, "GPU": 2.0}, {"CPU": 64.0, "GPU": 4.0}, {"CPU": 48.0}
    assert needs(0, cpu, small) == {"num_cpus": 16}
    assert needs(1, cpu, small, large) == {"num_cpus": 8, "num_gpus": 1}
    assert needs(1, small, resources="gpus=0.25") == {"num_cpus": 2, "num_gpus": 0.25}
    assert needs(1, small, resources="gpus=0.25 cores=3") == {"num_cpus": 3, "num_gpus": 0.25}
    assert needs(4, small, large, resources="gpus=0.25") == {"num_cpus": 64, "num_gpus": 4}
    assert needs(0, {"CPU": 0.0}, cpu, resources="cores=40") == {"num_cpus": 40}
    with pytest.raises(ValueError) as error:
        needs(8, cpu, large)
    assert str(error.value) == (
        "mine needs 8 GPUs and 1 cores on one machine, but the cluster has: 0 GPUs, 48 cores; 4 GPUs, 64 cores"
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Does a task whose `rskip` is a shell script."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.chdir(tmp_path)

    def run(script: str) -> str:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin/rskip").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin/rskip").chmod(0o755)
        variables = {"RSKIP_JOB": "1", "OMP_NUM_THREADS": "3"}
        return work(str(tmp_path), "marker", ["run", "x"], "runs/x/1/run.log", variables)

    (tmp_path / "marker").touch()
    return run


def test_a_task_is_the_command_and_says_in_one_line_what_went_wrong(
    run: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run('echo "$@" $RSKIP_JOB $OMP_NUM_THREADS $PWD') == ""
    assert (tmp_path / "runs/x/1/run.log").read_text() == f"run x 1 3 {tmp_path}\n"
    assert run("echo rskip run: error: the weight is nan >&2; exit 1") == "the weight is nan"
    assert run("kill -TERM $$") == "killed by signal 15: it printed nothing"
    with pytest.raises(RunKilled):
        run("kill -KILL $$")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/x/1/run.log")

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "end_of", full)
        problem = run("")
    assert problem.endswith(": [Errno 28] No space left on device: 'runs/x/1/run.log'")


def test_a_machine_that_does_not_see_the_folder_runs_nothing(
    run: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_LOOKS", 1)
    (tmp_path / "marker").unlink()
    problem = run("touch ran")
    assert f" doesn't see {tmp_path}, or sees other files in it than this machine: put the project's" in problem
    assert not (tmp_path / "ran").exists() and "\n" not in problem
