"""Random command lines in this process, where commands can't train, install or download."""

from __future__ import annotations

import argparse
import io
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import example
from hypothesis import strategies as st

from rskip.cli.main import build_parser, subcommand_module, subcommands
from tests.fuzz.contract import command
from tests.fuzz.values import NUMBERS, TEXTS, given

ROOT = Path(__file__).parents[2]
ACTING = {"setup-fairseq", "doctor", "initialise"}  # they install, ask other processes, or fairseq
NAMED = [name for name in subcommands() if name not in ACTING]
NAMED += [f"{group} {name}" for group in subcommands() for name in subcommands(subcommand_module(group))]
# beside what values there are: paths of every kind, `here` being the current folder
PATHS = [
    "FILE", "MODEL", "FOLDER", "EMPTY", "RECIPE", "absent", "/dev/null", "/proc/x", "out", "out.pt", "out.png", "-",
    ".",
]  # fmt: skip
SHORT = [text for text in TEXTS if len(text) < 100]
WORDS = [*map(str, NUMBERS[:14]), "1e9", "-1e3", "nan", "inf", *SHORT, *PATHS, "de", "train.lr=x", "multi30k-en-de"]
words = st.sampled_from(WORDS) | st.text(max_size=6)


def actions(name: str) -> list[argparse.Action]:
    """The arguments of a command; of a group that does nothing itself the choice of a command."""
    parser = build_parser(name.split())
    for word in name.split():
        (inner,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
        parser = inner.choices[word]
    return parser._actions


@st.composite
def lines(draw: st.DrawFn, name: str) -> list[str]:
    """A command line of the subcommand: most of what it needs, some of what it may have, and what it doesn't know."""
    line = name.split()
    known = [each for each in actions(name) if each.dest != "help"]
    needed = [each for each in known if each.required and draw(st.integers(0, 9))]
    some = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
    for action in [*needed, *some]:
        value = action.choices and draw(st.sampled_from(list(map(str, action.choices))) | words) or draw(words)
        if action.dest in ("model", "checkpoint", "data", "path") and draw(st.booleans()):
            value = draw(st.sampled_from(["MODEL", "FOLDER", "EMPTY"]))
        if action.option_strings:
            line.append(draw(st.sampled_from(action.option_strings)))
        if action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction):
            line.append(value)
    return [*line, *draw(st.lists(words, max_size=1))]


@pytest.fixture
def places(model: Path, tmp_path: Path) -> dict[str, str]:
    """What the words in capitals stand for."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("a ab c .\n\nb d\n")
    for name in ("a.txt", "b.json", "config.json"):
        (tmp_path / "folder" / name).write_text("{}\n")
    return {
        "FILE": str(tmp_path / "file.txt"),
        "MODEL": str(model),
        "FOLDER": str(tmp_path / "folder"),
        "EMPTY": str(tmp_path / "empty"),
        "RECIPE": str(ROOT / "recipes" / "multi30k_en_de.yaml"),
    }


def run(line: list[str], places: dict[str, str]) -> tuple[int, str]:
    """The line's status and output; `rskip run` only says what it would do."""
    line = [places.get(word, word).replace("\ud800", "\udcff") for word in line]
    if line[0] == "run":
        line.append("--dry-run")
    return command(line)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither fairseq's parser is asked, which takes seconds, nor do processes search."""
    monkeypatch.setattr("rskip.translation.training.check_fairseq_flags", lambda given: None)
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    monkeypatch.setattr("rskip.cli._translate.worth_workers", lambda *_: 1)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    if find_spec("onnxscript"):
        monkeypatch.setattr("rskip.translation.onnx_model.write_onnx", lambda *_, **__: None)
    monkeypatch.setattr("rskip.files.download.FIRST_WAIT", 0)


@pytest.mark.parametrize("name", NAMED)
def test_lines(name: str, places: dict[str, str]) -> None:
    @given(lines(name))
    def line(line: list[str]) -> None:
        if "--workers" not in line:
            run(line, places)

    line()


FOUND = [
    ["translate", "--model", "MODEL", "FILE", "--beam", "100000"],
    ["translate", "--model", "MODEL", "FILE", "--workers", "99999999999999999999"],
    ["translate", "--model", "MODEL", "FILE", "--threads", "100000"],
    ["translate", "--model", "MODEL", "FILE", "--sampling", "--temperature", "1e-320"],
    ["translate", "--model", "MODEL", "FILE", "--min-len", "1000000", "--max-len-b", "2000000"],
    ["evaluate", "--hypothesis", "FILE", "--reference", "FILE", "--baseline", "FILE", "--samples", "9" * 20],
    ["analyse", "signals", "2rskip+ln", "--seed", "99999999999999999999"],
]


@pytest.mark.parametrize("line", FOUND, ids=lambda line: " ".join(line)[:60])
def test_lines_that_were_found(line: list[str], places: dict[str, str]) -> None:
    assert run(line, places)[0] == 2


@example(["--lenpen", "5"])
@given(st.lists(words, max_size=4))
def test_words(line: list[str]) -> None:
    command([word.replace("\ud800", "\udcff") for word in line if word not in subcommands()])
