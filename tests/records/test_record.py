"""Run records are written and read back, and incomplete ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from rskip.records import Record, read_record, read_records, read_run_records, record_path
from rskip.records.record import run_address
from rskip.settings.errors import SettingError

MakeRecord = Callable[..., Record]


def test_written_and_read_back(make_record: MakeRecord, tmp_path: Path) -> None:
    record = make_record(git={"commit": "abc", "dirty": False})
    record.write(path := tmp_path / record.path)
    assert record.path == Path("results/numbers/1.json") == record_path("numbers", 1)
    assert read_record(path) == msgspec.structs.replace(record, path=path)
    assert next(iter(json.loads((tmp_path / record.path).read_text()))) == "schema"


def test_a_committed_record_that_is_read_and_written_changes_no_byte(root: Path, tmp_path: Path) -> None:
    committed = sorted((root / "study/results/runs").rglob("*.json"))
    assert len(committed) >= 12
    changed = []
    for path in committed:
        read_record(path).write(tmp_path / "again.json")
        if (tmp_path / "again.json").read_bytes() != path.read_bytes():
            changed.append(path)
    assert changed == []


def test_records_come_in_the_order_of_runs_and_seeds(
    make_record: MakeRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for record in (make_record(seed=10), make_record(seed=2), make_record(recipe="a")):
        record.write(record.path)
    Path("results/a/.1.json.x.partial.json").write_text("{")  # of a process that was killed while it wrote
    assert [(record.run, record.seed) for record in read_records(Path("results"))] == [
        ("a", 1), ("numbers", 2), ("numbers", 10)
    ]  # fmt: skip
    assert [record.seed for record in read_run_records("numbers")] == [2, 10]
    assert read_records(Path("absent")) == read_run_records("absent") == []


WRONG: dict[str, dict[str, object]] = {  # the setting that is named -> what is wrong
    "schema": {"schema": 3},
    "seed": {"seed": True},
    "curve[0].epoch": {"curve": [{"epoch": "3"}]},
    "machine.cpu": {"machine": {"threads": 2}},
    "metrics.sacrebleu": {"metrics": {"sacrebleu": float("nan")}},
    "checkpoint_sha256": {"checkpoint_sha256": "abc"},
    "training.pieces": {"training": {"seconds": 3}},
    "metircs": {"metircs": {}},
}


def test_what_is_not_a_record_names_the_file_and_the_field(make_record: MakeRecord, tmp_path: Path) -> None:
    path, content = tmp_path / "1.json", msgspec.structs.asdict(make_record())
    del content["path"]
    for name, changes in WRONG.items():
        path.write_text(json.dumps({**content, **changes}))
        with pytest.raises(SettingError) as error:
            read_record(path)
        assert (error.value.source, error.value.name) == (str(path), name.rstrip())
        if set(changes) <= set(content):  # the same where it is made in Python
            with pytest.raises(SettingError) as error:
                make_record(**changes)
            assert error.value.name == name.rstrip()
    for text in ("[]", "{", json.dumps(content)[:100], '{"schema": 1}', '{"seed": 1, "seed": 2}'):
        path.write_text(text)
        with pytest.raises(SettingError) as error:
            read_record(path)
        assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
    path.write_text('{"tokens": 9}')  # another program's file: the advice must not be to remove it
    with pytest.raises(SettingError, match="not a run record from `rskip run`; move it out of the folder"):
        read_record(path)


def test_a_run_is_addressed_by_recipe_variant_and_overrides() -> None:
    assert run_address("a", "b") == run_address("a", "b", {}) == "a/b" and run_address("a", None) == "a"
    # sha256 of {"average.last":2,"train.lr":0.003}
    assert run_address("a", "b", {"train.lr": 0.003, "average.last": 2}) == "a/b-54661a6c"
    assert run_address("a", None, {"average.last": 2, "train.lr": 0.003}) == "a-54661a6c"
