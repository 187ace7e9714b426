"""Run folders: bound to one config, used by one process at a time; what a training is resumed in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rskip.settings.errors import SettingError
from rskip.tasks.run import (
    SESSION,
    Run,
    RunFolder,
    _said,
    earlier_environments,
    new_lines,
    precision_here,
    trained_in,
)


def test_bound_to_the_config_that_it_was_started_with(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.bind({"train": {"lr": 0.005, "bf16": True}})
    folder.bind({"train": {"lr": 0.005, "bf16": True}})
    with pytest.raises(ValueError) as error:
        folder.bind({"train": {"lr": 0.003, "dropout": 0.1, "bf16": True}})
    assert "train.lr: 0.005, now 0.003; train.dropout: not set, now 0.1" in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_each_stage_has_its_own_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run(name="r", seed=1, settings=None)
    run.folder.path.mkdir(parents=True)
    assert run.begin_session(asked="float32") == "float32"
    assert run.begin_session(asked="float16", stage="self_critical") == "float16"
    assert run.begin_session(asked="float32", stage="self_critical") == "float16"
    assert run.begin_session(asked="float16") == "float32"


def test_a_record_has_one_precision_or_one_per_stage() -> None:
    first, second = {"precision": "float32"}, {"precision": "bfloat16", "stage": "self_critical"}
    assert trained_in([first, first]) == "float32"
    assert trained_in([first, {**second, "precision": "float32"}]) == "float32"
    assert trained_in([first, second, second]) == {"train": "float32", "self_critical": "bfloat16"}
    assert trained_in([{}]) is None, "an old log"


def test_a_record_lists_what_earlier_sessions_had_different_each_once() -> None:
    last = {"git": {"commit": "b" * 40}, "packages": {"torch": "2.9"}, "machine": {"cpu": "x", "threads": 1}}
    other_code = {**last, "git": {"commit": "a" * 40}}
    all_other = {"git": None, "packages": {"torch": "2.8"}, "machine": {"cpu": "y", "threads": 2}}
    assert earlier_environments([last]) == []
    assert earlier_environments([{**last, "precision": "float32"}, last]) == []
    assert earlier_environments([other_code, all_other, other_code, last]) == [{"git": {"commit": "a" * 40}}, all_other]


def test_a_training_is_resumed_with_as_many_processes_as_it_was_started_with(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.keep_processes(4)
    folder.keep_processes(4)
    with pytest.raises(SettingError, match="gpus is 1: expected 4, as at the start of .*; use that") as error:
        folder.keep_processes(1)
    assert error.value.name == "gpus", "which the command line calls --gpus"


def test_the_log_tells_of_every_session_and_of_none_where_there_is_none(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for content in (None, "epoch 1\n"):
        if content is not None:
            folder.train_log.write_text(content)
        with pytest.raises(ValueError, match="records no training session: move"):
            folder.sessions()
    session = {"git": None, "packages": {"torch": "2.9"}, "machine": {"cpu": "x", "threads": 1}}
    lines = [SESSION + json.dumps({**session, "precision": "float32"}), "\xff", SESSION + json.dumps(session), ""]
    folder.train_log.write_bytes("\n".join(lines).encode("latin1"))
    assert folder.sessions() == [{**session, "precision": "float32"}, session]


def test_a_session_has_a_line_of_its_own_where_the_one_before_was_killed_in_one(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run(name="r", seed=1, settings=None)
    run.folder.path.mkdir(parents=True)
    run.folder.train_log.write_text('2026-01-01 | INFO | train_inner | {"epoch": 1, "los')
    for count in (1, 2):
        run.begin_session()
        assert len(run.folder.sessions()) == count
    assert run.folder.train_log.read_text().count("\n") == 3


def test_float32_takes_the_place_of_emulated_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    for multiplies in (True, False):
        monkeypatch.setattr("rskip.machine.device.bfloat16_is_slow", lambda device, it=multiplies: not it)
        assert precision_here("bfloat16", gpus=0) == ("bfloat16" if multiplies else "float32")
        assert precision_here("float16", gpus=0) == "float16"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("rskip.machine.device.bfloat16_is_slow", lambda device: device != torch.device("cuda", 0))
    assert [precision_here("bfloat16", gpus=gpus) for gpus in (1, 2)] == ["bfloat16", "float32"]


def test_notes_and_points_of_a_log_are_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("note: of an earlier session\niteration 5/20   lr 1\n")
    report = new_lines(log, _said)
    for text, printed in (
        ("a\nnote: b", ""), (" c\nnote: d\n", "note: b c\nnote: d\n"), ("", ""), ("epoch 1\niteration 1\n", ""),
        ("epoch 1/3   loss 2\niteration 1,000/2,000   loss 1\n",
         "epoch 1/3   loss 2\niteration 1,000/2,000   loss 1\n"),
    ):  # fmt: skip
        with log.open("a") as file:
            file.write(text)
        report()
        assert capsys.readouterr().out == printed
    again = new_lines(log, lambda file: file.read_text().split())
    for text in ("1", "1 2", "1 2 3"):  # a resumed training does its last epoch again
        log.write_text(text)
        again()
    assert capsys.readouterr().out == ""
