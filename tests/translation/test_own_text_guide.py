"""docs/own_text.md, followed word for word: its commands and Python examples, with options appended that shorten them.

The commands are those that the guide has, so a command that is added to it is run too.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.corpora.numbers import NUMBERS_CORPORA
from rskip.files.text_lines import read_lines
from rskip.records import read_record

SHORTER = {
    "rskip train": ["--updates", "4"],
    "fairseq-train": ["--max-update", "4"],
    "rskip run": ["--seeds", "2"],
    "rskip average": ["--last", "1"],
}
SIZES = {"train": 300, "valid": 10, "test": 10}
WRITES = ("--output", "--plot", "--save-dir")  # what they name exists afterwards


@dataclass
class Step:
    """A command of the guide with the output that the guide shows after it, or a Python example."""

    words: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    python: str = ""


def steps(part: str) -> Iterator[Step]:
    """The steps of a part of the guide. A command is an indented line that begins with a program beside Python."""
    step = Step()
    for block in re.findall(r"```python\n.*?```|(?:^    .*\n|^\n(?=    ))+", part.replace("\\\n", " "), re.M | re.S):
        if block.startswith("```"):
            yield Step(python=block.removeprefix("```python\n").removesuffix("```"))
            continue
        for line in block.splitlines():
            if re.match(r"    \S", line) and (Path(sys.executable).parent / line.split()[0]).is_file():
                step = Step(shlex.split(line))
                yield step
            elif line.strip(" ."):
                step.output.append(line)


def beginning(line: str) -> str:
    """A line up to its first number or colon, without repeated spaces: the same for every text."""
    return " ".join(re.split(r"[:\d]", line)[0].split())


def write_texts(folder: Path) -> None:
    """The files that the guide begins with: train, valid, test and more in both languages, and input.en."""
    pairs: dict[str, list[tuple[str, str]]] = {split: [] for split in SIZES}
    for split, pair in NUMBERS_CORPORA[0].generate(pairs=SIZES["train"], seed=1):
        if len(pairs[split]) < SIZES[split]:
            pairs[split].append(pair)
    pairs["train"].append(pairs["train"][0])  # a duplicate, as in the guide
    pairs["input"], pairs["more"] = pairs["test"][:5], pairs["train"][:100]
    folder.mkdir()
    for split, of_split in pairs.items():
        for side, language in enumerate(("en", "de")):
            if (split, language) != ("input", "de"):
                text = "".join(f"{pair[side]}\n" for pair in of_split)
                (folder / f"{split}.{language}").write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_the_guide_from_two_files_to_a_translator(
    root: Path,
    tmp_path: Path,
    forked_logged: Callable[..., None],
    fairseq_program: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("fairseq")
    for module in ("rskip.tasks.run", "rskip.translation.scoring"):
        monkeypatch.setattr(f"{module}.run_logged", forked_logged)
    for module in ("rskip.translation.training", "rskip.experiments.quick_start"):  # fairseq-train asks again
        monkeypatch.setattr(f"{module}.check_fairseq_flags", lambda given: None)
    guide = (root / "docs/own_text.md").read_text(encoding="utf-8")
    introduction, sections = re.split(r"^(?=## )", guide, maxsplit=1, flags=re.M)
    run = []
    for number, part in enumerate((introduction, sections)):  # each goes from the files to a translation
        folder = tmp_path / f"part{number}"
        write_texts(folder)
        monkeypatch.chdir(folder)
        for step in steps(part):
            capsys.readouterr()
            if step.python:
                *_, last = step.python.strip().splitlines()
                names: dict[str, object] = {}
                exec(step.python, names)
                assert isinstance(eval(last, names), str)
                continue
            program = " ".join(step.words[:2]) if step.words[0] == "rskip" else step.words[0]
            run.append(program)
            words = [*step.words, *SHORTER.get(program, ())]
            if words[0] == "rskip":
                assert main(words[1:]) in (0, None), words
                printed = capsys.readouterr().out
            else:
                words, written = (words[:-2], words[-1]) if ">" in words else (words, None)
                process = fairseq_program(*words, folder=folder)
                assert process.returncode == 0, process.stderr
                printed = process.stdout
                if written:
                    Path(written).write_text(printed, encoding="utf-8")
            lines = [" ".join(line.split()) for line in printed.splitlines()]
            for expected in map(beginning, step.output):
                assert any(line.startswith(expected) for line in lines), f"{program}: {expected}\n{printed}"
            for flag, name in zip(words, words[1:], strict=False):
                if flag in WRITES:
                    assert Path(name).exists(), f"{program} wrote no {name}"
        assert len(list(read_lines(Path("output.de")))) == len(list(read_lines(Path("input.en")))) == 5
        for name in re.findall(r"\bmodel/[\w./-]*\w", part):
            assert Path(name).exists(), name
    assert {"rskip prepare", "rskip train", "rskip translate", "rskip run"} <= {*run}
    assert {"fairseq-train", "rskip average", "fairseq-generate"} <= {*run}
    first, second = (read_record(Path(f"model/results/recipe/{seed}.json")) for seed in (1, 2))
    assert first.config == second.config and first.metrics != second.metrics
