"""A run: one seed of a recipe's variant, with its folder and the sessions of its training."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from rskip.files.folder_lock import FolderLock, folder_lock
from rskip.files.state import parse_state, read_state
from rskip.files.whole import atomic_file
from rskip.machine.environment import describe_environment
from rskip.settings.differences import differences
from rskip.settings.errors import SettingError
from rskip.tasks.process import run_logged

SettingsT = TypeVar("SettingsT")

RUNS = Path("runs")  # unless a recipe names another folder
FIRST_STAGE = "train"  # the only or first training stage of a run
SESSION = "rskip run | "  # begins the line of train.log with the environment of a session
_SAID = re.compile(r"note: |(epoch|iteration) [\d,]+/")
_ENVIRONMENT = ("git", "packages", "machine")


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The setting `probe` of a recipe: probes the training into probe.jsonl of the run, without changing its result.

    :param every: updates between two probes.
    """

    every: Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True, kw_only=True)
class Run(Generic[SettingsT]):
    """A run, which a task trains and scores.

    :param name: the run's address, `recipe/variant`, which is also its folder in runs/ and results/.
    :param mirror: folder or URL of the dataset; None: its public source.
    :param gpus: number of GPUs, 0 for the CPU.
    :param lock: lock of the folder, which the training inherits.
    :param runs: parent folder of the folders of runs.
    """

    name: str
    seed: int
    settings: SettingsT
    mirror: str | None = None
    gpus: int = 0
    probe: ProbeSettings | None = None
    lock: FolderLock | None = None
    runs: Path = RUNS

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return RunFolder(self.runs / self.name / str(self.seed))

    @property
    def probe_flags(self) -> list[str]:
        """The training command's flags that probe it; empty without a probe."""
        if self.probe is None:
            return []
        return ["--probe-every", str(self.probe.every), "--probe-file", str(self.folder.probe)]

    def train(self, command: Sequence[str], *, resumed: bool, report: Callable[[], None] = lambda: None) -> None:
        """Runs a session of a training, which `begin_session` began, to its end. Its output goes to train.log.

        Prints the log's notes and the points of its learning curve.

        :param command: the words of the command.
        :param resumed: whether the session starts from a checkpoint.
        :param report: called about every second, to print further progress.
        :raises ValueError: the command refuses its arguments.
        :raises CommandFailed: the command failed.
        """
        said = new_lines(self.folder.train_log, _said)

        def on_poll() -> None:
            said()
            report()

        print(f"{'resuming' if resumed else 'training'}; log: {self.folder.train_log}", flush=True)
        processes = max(self.gpus, 1)
        run_logged(command, log=self.folder.train_log, processes=processes, lock=self.lock, on_poll=on_poll)

    def begin_session(self, *, stage: str = FIRST_STAGE, asked: str = "float32") -> str:
        """Logs the environment of a training session, and returns its precision.

        :param stage: the training stage.
        :param asked: the precision in the settings.
        :raises SettingError: the number of GPUs differs from that at the start.
        """
        self.folder.keep_processes(max(self.gpus, 1))
        name = "precision" if stage == FIRST_STAGE else f"precision-{stage}"
        precision = self.folder.keep(name, precision_here(asked, gpus=self.gpus))  # which its checkpoints need
        if precision != asked:
            here = precision == precision_here(asked, gpus=self.gpus)
            why = f"{asked} is slower on a CPU without instructions for it" if here else f"it began in {precision}"
            print(f"training in {precision}, though the recipe says {asked}: {why}", flush=True)
        session = {**describe_environment(), "precision": precision}
        if stage != FIRST_STAGE:
            session["stage"] = stage
        session["machine"] |= {"gpus": self.gpus} if self.gpus > 0 else {"gpu": None}
        started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line = f"{SESSION}{json.dumps({'started': started, **session})}\n"
        with self.folder.train_log.open("ab+") as log:
            log.seek(max(log.tell() - 1, 0))
            cut_off = log.read() not in (b"", b"\n")  # the previous session was killed in the middle of a line
            log.write(f"{chr(10) * cut_off}{line}".encode())
        return precision


class RunFolder:
    """The folder of one run, `runs/<run name>/<seed>/`, with its lock and its config."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.train_log = path / "train.log"
        self.probe = path / "probe.jsonl"

    def lock(self) -> AbstractContextManager[FolderLock]:
        """Locks the folder for this process and the trainings that inherit the lock, and returns the lock."""
        return folder_lock(
            self.path,
            busy=f"{self.path} is in use by another `rskip run` or its training process "
            "(process {process}): wait for it, or stop it and repeat the command to resume",
        )

    def bind(self, config: Mapping[str, Any], *, given: Mapping[str, Any] | None = None) -> None:
        """Writes the config into a new folder. `given` is as for `config_difference`.

        :raises ValueError: the folder belongs to another config.
        """
        file = self.path / "run.json"
        if not file.exists():
            _write(file, json.dumps(config, indent=2))
            return
        started_with = read_state(file, dict[str, Any], advice=self._anew)
        if difference := config_difference(started_with, config, given=given):
            raise ValueError(
                f"{self.path} was started with other settings ({difference}): "
                "for another run, give the changes with --set, or move that folder away"
            )

    def keep_processes(self, count: int) -> None:
        """Checks that a training is resumed with the same number of processes.

        fairseq resumes at the number of a batch, which is another position in the data on another number of GPUs.

        :raises SettingError: the number differs from that at the start.
        """
        if (before := self.keep("processes", str(count))) != str(count):
            expected = f"{before}, as at the start of {self.path}"
            raise SettingError.of_value("gpus", count, expected, advice="use that number, or move the folder away")

    def keep(self, name: str, text: str) -> str:
        """The text in a file of the folder, which is written if it does not exist."""
        file = self.path / name
        if not file.exists():
            _write(file, text)
        return file.read_text(encoding="utf-8").strip()

    def sessions(self) -> list[dict[str, Any]]:
        """The environment of each session of the training, in order: git, packages, machine, precision.

        :raises ValueError: the folder has no training log.
        """
        if self.train_log.is_file():
            with self.train_log.open(encoding="utf-8", errors="replace") as lines:
                sessions = [line.removeprefix(SESSION).encode() for line in lines if line.startswith(SESSION)]
            found = [
                parse_state(line, dict[str, Any], source=f"{self.train_log}, session {number}", advice=self._anew)
                for number, line in enumerate(sessions, start=1)
            ]
            if found:
                return found
        raise ValueError(f"{self.train_log} records no training session: {self._anew}")

    @property
    def _anew(self) -> str:
        return f"move {self.path} away and run again"


def _said(log: Path) -> list[str]:
    """The complete lines of a log that `rskip run` repeats: notes, and points of a learning curve."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return [line[:-1] for line in lines if _SAID.match(line) and line.endswith("\n")]


def new_lines(file: Path, lines: Callable[[Path], Sequence[str]]) -> Callable[[], None]:
    """Returns a function that prints the lines that came since its last call, such as one per epoch that ended.

    :param file: a file that the training writes, such as its log.
    :param lines: reads the file and returns all lines to print.
    """
    size, printed = -1, 0

    def report(*, shown: bool = True) -> None:
        nonlocal size, printed
        if file.exists() and file.stat().st_size != size:
            size = file.stat().st_size
            for line in lines(file)[printed:]:
                printed += 1
                if shown:
                    print(line, flush=True)

    report(shown=False)
    return report


def once(file: Path, evaluate: Callable[[], dict[str, Any]] = dict) -> dict[str, Any]:
    """The evaluation in a JSON file, which is made and written first if the file does not exist."""
    if not file.exists():
        _write(file, json.dumps(evaluate(), indent=1))
    return read_state(file, dict[str, Any], advice="delete it to evaluate again")


def precision_here(asked: str, *, gpus: int) -> str:
    """The precision to use: `asked`, but float32 instead of bfloat16 if the CPU or a GPU has no bfloat16 instructions.

    There, PyTorch emulates bfloat16, which is several times slower than float32 and less exact.

    :param gpus: number of GPUs, 0 for the CPU.
    """
    if asked != "bfloat16":
        return asked
    import torch

    from rskip.machine.device import bfloat16_is_slow

    here = min(gpus, torch.cuda.device_count())  # fewer if commands are printed for another machine
    devices = [torch.device("cuda", number) for number in range(here)] if gpus else [torch.device("cpu")]
    return "float32" if any(map(bfloat16_is_slow, devices)) else asked


def trained_in(sessions: Sequence[Mapping[str, Any]]) -> str | dict[str, str | None] | None:
    """The precision of a run's training: one for all stages, or one per stage if they differ. None: not recorded."""
    found = {each.get("stage", FIRST_STAGE): each.get("precision") for each in sessions}
    return found if len({*found.values()}) > 1 else next(iter(found.values()))


def earlier_environments(sessions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What differs from the last session in earlier ones (of git, packages and machine), each difference once.

    Sessions with other code or another machine can have other numerics.
    """
    *earlier, last = map(dict, sessions)
    found: list[dict[str, Any]] = []
    for session in earlier:
        different = {key: was for key in _ENVIRONMENT if (was := session.get(key)) != last.get(key)}
        if different and different not in found:
            found.append(different)
    return found


def config_difference(
    before: Mapping[str, Any], now: Mapping[str, Any], *, given: Mapping[str, Any] | None = None
) -> str:
    """Lists each differing key once, see `differences`: "train.lr: 0.005, now 0.003; train.bf16: not set, now yes".

    :param given: the settings of `now` in the recipe; the others are defaults. A default that `before` lacks belongs to
        a newer setting and is not a difference. None: all settings were given.
    """
    old, new = flat_config(before), flat_config(now)
    keys = {*old, *(new if given is None else flat_config(given))}
    compared = ({key: value for key, value in each.items() if key in keys} for each in (old, new))
    return "; ".join(differences(*compared))


def flat_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and their values, as for `--set`."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat.update(flat_config(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
