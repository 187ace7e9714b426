"""Damages every kind of state that rskip writes: reading it gives a value of its type or a one-line error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st

from rskip.analysis.measurement import Measurement, read_measurement
from rskip.captioning.captions import read_split
from rskip.captioning.outputs import written_lines
from rskip.captioning.preparation import CaptionRecord
from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.record import TranslationRecord, made_record, read_corpus_record
from rskip.files.folder_lock import Owner, read_owner
from rskip.files.resumable import Entry, ResumableFile
from rskip.files.state import state_line
from rskip.tasks.run import SESSION, RunFolder, once
from rskip.tasks.training_folder import TrainingCheckpoint, TrainingFolder, read_checkpoint
from rskip.vision.training import CurvePoint, read_curve
from tests.fuzz.contract import holds
from tests.fuzz.test_fuzz_files import OWN_IMAGES, damaged, damages, edited, edits, in_json
from tests.fuzz.values import given

POINT = CurvePoint(
    epoch=1, iteration=3, lr=0.1, train_loss=2.0, train_error=90.0, test_loss=None, test_error=None,
    images_per_second=50.0, seconds=1.0,
)  # fmt: skip
MACHINE = {"system": "Linux", "cpu": "x", "cores": 2, "threads": 2, "gpu": None}
PREPARED = {
    "format": 1, "corpus": "a-en-de", "options": {"shards": 1}, "inputs": {"a": {"sha256": "1"}}, "files": {"a": "1"},
    "sizes": {"a": 3}, "sentences": {"train": 9}, "dictionary_size": 8, "tools": {"a": "1"},
}  # fmt: skip
COUNTS = {"train": 2, "valid": 1}
CAPTIONED = {
    **{key: value for key, value in PREPARED.items() if key != "sentences"},
    "images": COUNTS, "captions": COUNTS, "upstream": COUNTS, "unused_pictures": 0, "examples": {},
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """A file's lines as JSON values, and the function that reads it. `form` writes a line."""

    name: str
    lines: list[Any]
    read: Callable[[Path], Any]
    kind: Any = object
    form: str = "{}\n"


def journal(path: Path) -> int:
    """The number of lines that an unfinished output with this journal has."""
    path.with_suffix("").write_text("a\nb\nc\n")
    with ResumableFile(path.with_suffix(""), {"beam": 4}, resume=True) as file:
        return file.lines


WINDOWS = [Entry(window=at, lines=at + 1, bytes=2 * at + 2, sha256="0") for at in (0, 1)]
STATES = [
    State("part.journal", [{"beam": 4}, *WINDOWS], journal, int),
    State("captions.jsonl", [{"image": "a", "caption": "x"}, {"image": "b", "error": "y"}], written_lines, tuple),
    State("curve.jsonl", [POINT, POINT], read_curve, list),
    State("run.json", [{"settings": {"precision": "float32", "compile": False}}],
          lambda path: TrainingFolder(path.parent).begun_with(), dict),
    State("run.json", [{"train": {"lr": 0.1}}], lambda path: RunFolder(path.parent).bind({"train": {"lr": 0.1}})),
    State("train.log", [{"git": None, "packages": {"torch": "2"}, "machine": MACHINE}],
          lambda path: RunFolder(path.parent).sessions(), list, SESSION + "{}\n"),
    State("evaluation.json", [{"error": 9.0, "accuracy": 91.0, "top5_error": 1.0, "loss": 0.3, "per_class": [
        {"name": "cat", "count": 3, "error": 9.0, "taken_for": None, "taken": 0}]}], once, dict),
    State("owner.json", [asdict(Owner(attempt=3, host="h", process=1, since="2026"))],
          lambda path: read_owner(path.parent), (Owner, type(None))),
    State("corpus.json", [PREPARED], lambda path: made_record(path.parent, TranslationRecord), dict),
    State("corpus.json", [CAPTIONED], lambda path: made_record(path.parent, CaptionRecord), dict),
    State("corpus.json", [PREPARED], lambda path: read_corpus_record(path.parent)),
    State("cleaning.json", [CleaningReport(()).to_dict()], CleaningReport.read, CleaningReport),
    State("train.jsonl", [{"image": "a", "captions": ["A."], "tokens": ["a"]}] * 2,
          lambda path: read_split(path.parent, "train"), list),
    State("a.json", [{"analysis": "gates", "conditions": {"machine": MACHINE}, "rows": [{"x": 1.0}, {"x": None}]}],
          read_measurement, Measurement),
]  # fmt: skip


@pytest.mark.parametrize("state", [pytest.param(each, id=f"{each.name}-{n}") for n, each in enumerate(STATES)])
def test_damaged_state(state: State, tmp_path: Path) -> None:
    path = tmp_path / state.name
    path.parent.mkdir(exist_ok=True)
    plain = [json.loads(state_line(line)) for line in state.lines]

    def written(lines: list[Any]) -> bytes:
        return "".join(state.form.replace("{}", in_json(line)) for line in lines).encode()

    def read() -> Any:
        found = holds(state.read, path)
        assert isinstance(found, (state.kind, ValueError)), found
        return found

    path.write_bytes(written(plain))
    assert not isinstance(read(), Exception)

    @example(([0.9], "same", None), ("same", 0.0, 0), "nested")
    @example(([0.9, 0.9], "replace", None), ("same", 0.0, 0), "")
    @example(([0.9, 0.9], "replace", "x"), ("same", 0.0, 0), "")
    @example(([0.9, 0.5], "replace", 10**30), ("same", 0.0, 0), "")
    @example(([0.9], "same", None), ("cut", 0.0, 0), "")
    @example(([0.9], "same", None), ("same", 0.0, 0), "twice")
    @given(edits(), damages, st.sampled_from(["", "", "twice", "nested"]), share=2)
    def changed(edit: Any, damage: Any, more: str) -> None:
        content = written(edited(plain, edit))
        if more == "twice":
            content = content.replace(b"{", b'{"a": 1, "a": 2, ')
        elif more == "nested":
            content = content.replace(b": ", b": " + b"[" * 5_000 + b"]" * 5_000 + b', "a": ', 1)
        path.write_bytes(damaged(content, damage))
        read()

    changed()


def test_damaged_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    tensors = {"fc.bias": torch.ones(10)}
    whole = {
        "settings": {"depth": 8}, "seed": 1, "processes": 1, "iteration": 3, "iterations": 11, "model": tensors,
        "optimiser": {"state": {0: {"momentum_buffer": torch.ones(10)}}, "param_groups": [{"params": [0]}]},
        "curve": [asdict(POINT)], "seconds": 0.5, "sums": [1.0, 2.0], "count": 3, "data": {"size": 32},
        "sessions": [{"from": 0, "device": "cpu", "torch": "2", "seconds": 3.0}],
        "config": {"model": {"depth": 8}, "classes": ["a", "b"], "images": OWN_IMAGES},
    }  # fmt: skip

    @given(edits())
    def changed(edit: Any) -> None:
        try:
            torch.save(edited(whole, edit), path)
        except (UnicodeEncodeError, OverflowError, RecursionError):  # pickle can't hold the value
            return
        assert isinstance(holds(read_checkpoint, path), (TrainingCheckpoint, ValueError))

    torch.save(whole, path)
    assert isinstance(read_checkpoint(path), TrainingCheckpoint)
    changed()
