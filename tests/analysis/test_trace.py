from __future__ import annotations

import json
import math

import pytest

from rskip.analysis.trace import Trace, due, read_trace, read_updates
from rskip.settings.errors import SettingError

BLOCK = {"block": 1, "stage": "layer1", "name": "layer1.0", "sublayer": "", "x_rms": 1.234567, "f_rms": math.inf}


def test_updates_are_due_written_and_read(tmp_path):
    trace = Trace(tmp_path / "probe.jsonl", done=0)
    assert [update for update in range(1, 8) if due(update, every=3)] == [1, 3, 6]
    trace.add(1, [BLOCK], loss=2.0, gradient_norm=math.nan)
    assert (tmp_path / "probe.jsonl").read_text() == (
        '{"update": 1, "loss": 2.0, "gradient_norm": null, "blocks": [{"block": 1, "stage": "layer1", "name": '
        '"layer1.0", "sublayer": "", "x_rms": 1.2346, "f_rms": null}]}\n'
    )
    measurement = read_trace(tmp_path / "probe.jsonl", model="sas", seed=2)
    assert measurement.analysis == "trace"
    (row,) = measurement.rows
    assert list(row.items()) == list(
        {
            "model": "sas", "seed": 2, "update": 1, "block": 1, "stage": "layer1", "name": "layer1.0", "sublayer": "",
            "x_rms": 1.2346, "f_rms": None, "y_rms": None, "similarity": None, "gradient": None, "alpha": None,
            "beta": None, "gamma": None, "loss": 2.0, "gradient_norm": None,
        }.items()
    )  # fmt: skip


def test_going_on_drops_what_the_checkpoint_lacks(tmp_path):
    path = tmp_path / "new" / "probe.jsonl"
    trace = Trace(path, done=0)
    for update in (1, 5, 10):
        trace.add(update, [])
    whole = path.read_text()
    path.write_text(whole + '{"update": 15, "bl')
    assert [each["update"] for each in read_updates(path)] == [1, 5, 10]
    Trace(path, done=7)
    assert [each["update"] for each in read_updates(path)] == [1, 5]
    Trace(path, done=0)
    assert path.read_text() == ""


def test_another_file_is_refused_by_its_line(tmp_path):
    path = tmp_path / "a.jsonl"
    for text, message in (('{"update": 1, "blocks": []}\n[]\n', "line 2"), ("{\n", "line 1: not valid JSON")):
        path.write_text(text)
        with pytest.raises(SettingError, match=message):
            read_updates(path)
    path.write_text(json.dumps({"update": 1, "blocks": []}) + "\n")
    assert read_trace(path, model="a", seed=1).rows == []
