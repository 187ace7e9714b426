"""Every row of the tables of errors in docs/reference.md, provoked as a user would: one line, with its exit status or
exception."""

from __future__ import annotations

import pkgutil
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rskip
from rskip.cli.main import main
from rskip.connections import parse_connection
from rskip.language_modeling.data import load_data
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.training import train

PAGE = (Path(__file__).parents[2] / "docs/reference.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
ROWS = re.findall(r"^\| `?([\w.]+)`?[ ,].*\|$", PAGE, re.M)
MODEL = "checkpoints/multi30k_en_de/2rskip_ln"
SETTINGS = {"layers": 1, "heads": 1, "features": 8, "context": 8, "batch_size": 2, "lr": 1e30, "iterations": 9}
Patch = pytest.MonkeyPatch


def command(*arguments: str, **replaced: Callable[..., object]) -> Callable[[Patch], object]:
    """The command, with other functions in the place of some of rskip's."""

    def run(monkeypatch: Patch) -> object:
        for name, function in replaced.items():
            monkeypatch.setattr(f"rskip.cli.{PLACES[name]}.{name}", function)
        return main([*arguments])

    return run


def full(*_: object) -> None:
    raise OSError(28, "No space left on device", "checkpoints.json")


def interrupted() -> None:
    raise KeyboardInterrupt


def closed(_: object) -> None:
    raise BrokenPipeError


def sent(*_: object, **__: object) -> None:
    signal.raise_signal(signal.SIGTERM)


def without_package(monkeypatch: Patch) -> object:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in [name for name in sys.modules if name.startswith(("rskip.serving.", "rskip.cli._serve"))]:
        if name != "rskip.serving.settings":  # which the flags are made of
            monkeypatch.delitem(sys.modules, name)
    return main(["serve", "--model", MODEL])


def without_pooch(monkeypatch: Patch) -> object:
    monkeypatch.delitem(sys.modules, "rskip.files.download", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    import rskip.files.download  # noqa: F401


def diverging(*, in_python: bool) -> object:
    Path("text.txt").write_text("to be or not to be, that is the question\n" * 99)
    assert main(["prepare", "--text", "text.txt", "--output", "data"]) == 0
    if in_python:
        return train(TrainingSettings(**SETTINGS), data=load_data("data"), folder=Path("run"), seed=1, device="cpu")
    return main(["lm", "train", "data", "--output", "run", "--set", *(f"{key}={SETTINGS[key]}" for key in SETTINGS)])


BROKEN = SimpleNamespace(lines=["not fine"], notes=[], wrong=["it is broken: fix it"])
PLACES = {"examine": "doctor", "read_registry": "zoo", "list_text": "zoo", "publish_model": "zoo"}
# for each row: what provokes it, and a part of the one line on stderr or of the exception; "": nothing is on stderr
CASES: dict[str, list[tuple[Callable[[Patch], object], str]]] = {
    "0": [(command("zoo", "list"), "")],
    "1": [(command("doctor", examine=lambda user_dir: BROKEN), "")],
    "2": [
        (command("translate", "--model", MODEL, "--beam", "0"), "--beam is 0: expected a whole number, 1 or more"),
        (command("evaluate", "--hypothesis", "none", "--reference", "none"), "none: "),
        (command("run", "none.yaml"), "no recipe none.yaml"),
        (without_package, "install the extra serve with pip install "),
        (command("zoo", "list", read_registry=full), "checkpoints.json: No space left on device; free some space"),
    ],
    "8": [(lambda _: diverging(in_python=False), "not finite")],
    "130": [(command("zoo", "list", read_registry=interrupted), "interrupted")],
    "141": [(command("zoo", "list", list_text=closed), "")],
    "143": [(command("zoo", "publish", "a", publish_model=sent), "terminated; repeat the command to resume")],
    "rskip.settings.errors.SettingError": [(lambda _: parse_connection("sas:gate=x"), "gate")],
    "rskip.connections.UnknownFamily": [(lambda _: parse_connection("2rskp"), "did you mean '2rskip'")],
    "rskip.extras.MissingExtra": [(without_pooch, "pip install ")],
    "rskip.translation.SentenceError": [(lambda _: rskip.load(MODEL).translate(["A dog.", "a\ud800"]), "sentence 2: ")],
    "rskip.vision.training.Diverged": [(lambda _: diverging(in_python=True), "not finite")],
    "ValueError": [(lambda _: rskip.load("none"), "no pretrained model 'none'")],
    "OSError": [(lambda _: rskip.load(Path("none")), "none: no such folder")],
}


def test_every_row_has_a_case() -> None:
    assert [row for row in ROWS if row not in ("code", "exception")] == [*CASES]


@pytest.mark.parametrize(("row", "provoke", "part"), [(row, *case) for row, cases in CASES.items() for case in cases])
def test_a_row_is_true(
    row: str, provoke: Callable[[Patch], object], part: str, root: Path, tmp_path: Path, monkeypatch: Patch, capsys: Any
) -> None:
    (tmp_path / "checkpoints").symlink_to(root / "checkpoints")
    monkeypatch.chdir(tmp_path)
    if not row.isdecimal():
        with pytest.raises(pkgutil.resolve_name(row if "." in row else f"builtins.{row}")) as error:
            provoke(monkeypatch)
        assert part in str(error.value) and "\n" not in str(error.value)
        return
    try:
        status = provoke(monkeypatch)
    except SystemExit as stop:
        status = stop.code
    line = capsys.readouterr().err.rpartition("\r")[2]
    assert (status, line.count("\n")) == (int(row), bool(part)) and part in line
