from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.analysis.measurement import read_measurement
from rskip.cli.main import main
from rskip.records import Record
from tests.cli.conftest import Refused


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_record: Callable[..., Record]) -> Path:
    monkeypatch.chdir(tmp_path)
    for seed, loss in ((1, 4.0), (2, 5.0)):
        curve = [{"epoch": epoch, "update": 10 * epoch, "valid_loss": loss + 1 / epoch} for epoch in (1, 2)]
        record = make_record(seed=seed, curve=curve)
        record.write(record.path)
    return tmp_path


def test_last_figures_are_printed_and_the_curves_written(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["analyse", "curves", "numbers", "--over", "update", "--output", "a/b"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "run      seed  update  valid_loss\n"
        "numbers     1      20         4.5\n"
        "numbers     2      20         5.5\n"
        "numbers  mean      20           5\n"
    )
    assert sorted(path.name for path in Path("a/b").iterdir()) == [f"curves.{k}" for k in ("csv", "json", "svg")]
    assert len(read_measurement(Path("a/b/curves.json")).rows) == 4
    assert main(["analyse", "curves", "results/numbers/2.json"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["numbers     2      2         5.5"]
    assert main(["analyse", "curves", "results/numbers/"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["seed", "1", "2", "mean"]


def test_what_is_not_there_is_one_line(runs: Path, refused: Refused) -> None:
    for words, message in (
        (["number"], "no run record in results/number/: expected a finished run (did you mean 'numbers'?)"),
        (["results/numbers/3.json"], "results/numbers/3.json: No such file"),
        (["numbers", "--quantities", "valid_los"], "'valid_los': expected valid_loss (did you mean 'valid_loss'?)"),
    ):
        refused(message, "analyse", "curves", *words)
