"""The folder beside an output in which it is made: what a killed process leaves, and the next one goes on from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rskip.corpora.record import OutputError, difference
from rskip.files.whole import atomic_file, put_in_place

STATE_FILE = "state.json"


class WorkFolder:
    """`DIR.partial` beside `DIR`: state.json says what is made there; each stage leaves files that appear when whole.

    :param output: the folder to be made.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output.with_name(output.name + ".partial")

    @property
    def result(self) -> Path:
        """What becomes the output."""
        return self.path / "result"

    def folder(self, name: str) -> Path:
        """A stage's folder, made where missing."""
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def begin(self, planned: dict[str, Any], *, force: bool) -> None:
        """Makes the folder, or goes on with one of the same plan.

        :param planned: everything that decides the bytes of the output.
        :param force: begin anew where the folder is of another plan.
        :raises OutputError: there is a folder of another plan, or one that is not ours.
        """
        if self.path.exists():
            state = self._state()
            differs = None if state is None else difference(state, planned)
            if differs is not None and not force:
                problem = f"{self.path} was left by an unfinished run and {differs}"
                advice = "repeat that command, choose another {output}, or begin anew with {force}"
                raise OutputError(problem, advice=advice)
            if differs is not None or not self.result.exists():
                self.remove()  # without a result it was killed in `begin` or in `finish`
        if not self.path.exists():
            self.path.mkdir(parents=True)
            write_json(self.path / STATE_FILE, planned)
            self.result.mkdir()
        for left in self.path.rglob(".*.partial*"):  # of a killed process
            if left.is_file():
                left.unlink()

    def _state(self) -> dict[str, Any] | None:
        """:raises OutputError: a folder that is not ours."""
        path = self.path / STATE_FILE
        if path.is_file():
            return read_json(path)
        if not self.path.is_dir() or any(not left.name.startswith(f".{STATE_FILE}.") for left in self.path.iterdir()):
            problem = f"{self.path} was not made by rskip prepare"
            raise OutputError(problem, advice="move it away, or choose another {output}")
        return None

    def finish(self) -> None:
        """The result becomes the output, in the place of one that is there, and the rest is removed."""
        put_in_place(self.result, self.output)
        self.remove()

    def remove(self) -> None:
        """Removes everything, the state last."""
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != STATE_FILE:
                path.unlink()
        shutil.rmtree(self.path)

    def remove_finished(self) -> None:
        """Removes what a process left that was killed while it removed the work folder of a whole output."""
        if (self.path / STATE_FILE).exists() and not self.result.exists():
            self.remove()


def write_json(path: Path, content: Any) -> None:
    """Writes a file that appears when it is whole."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
