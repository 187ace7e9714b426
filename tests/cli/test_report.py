"""`rskip report`, and that the committed tables say what the committed records say."""

from __future__ import annotations

from pathlib import Path

import pytest
from rskip.experiments.record import Record

from rskip.cli.main import main


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "README.md").write_text("<!-- rskip report: begin r* -->\n<!-- rskip report: end r* -->\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_record(accuracy: float) -> None:
    record = Record(
        recipe="r", run="r", kind="translation", seed=1, config={"corpus": "c"}, overrides={},
        metrics={"accuracy": accuracy}, signatures={}, curve=[], training={"seconds": 60.0, "pieces": 1},
        parameters=5, checkpoint_sha256="0" * 64, data={}, packages={},
        machine={"cpu": "Zuse Z4", "threads": 1, "gpu": None}, date="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    record.write(record.path)


def test_tables_are_written_then_up_to_date_then_out_of_date(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_record(95.5)
    assert main(["report"]) == 0
    assert capsys.readouterr().out == "results/README.md: written\nREADME.md: written\n"
    assert "| r | 5 | 1 | 95.50 (one seed) | 1 | Zuse Z4, 1 thread |" in (project / "README.md").read_text()
    assert main(["report"]) == main(["report", "--check"]) == 0
    assert capsys.readouterr().out == "every table is up to date\n"
    write_record(96.5)
    before = (project / "README.md").read_text()
    assert main(["report", "--check"]) == 1
    assert capsys.readouterr().err == (
        "rskip report: out of date with the records in results/: results/README.md, README.md; "
        "run `rskip report`\n"
    )
    assert (project / "README.md").read_text() == before


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 1}'])
def test_a_bad_record_is_one_line(project: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "results" / "r").mkdir()
    (project / "results" / "r" / "1.json").write_text(content)
    assert main(["report"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rskip report: error: results/r/1.json: ") and error.count("\n") == 1
    assert not (project / "results" / "README.md").exists()


def test_the_committed_tables_are_made_from_the_committed_records(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert main(["report", "--check"]) == 0, capsys.readouterr().err
