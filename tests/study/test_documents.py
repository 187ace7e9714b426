"""Documents and figures of the project: written, then up to date, then out of date; and what can't be made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.analysis.measurement import Measurement
from rskip.experiments.results import results_table
from rskip.records import Record
from study.__main__ import main
from study.figures import LIST

MakeRecord = Callable[..., Record]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "README.md").write_text("<!-- study: begin n* -->\n<!-- study: end n* -->\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_are_written_then_up_to_date_then_out_of_date(
    project: Path, make_record: MakeRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "docs").mkdir()
    (project / "docs" / "guide.md").write_text("no tables\n")
    for record in (make_record(), make_record(overrides={"train.lr": 1}), make_record(recipe="other")):
        record.write(record.path)
    assert main([]) == 0
    assert capsys.readouterr().out == "study/results/README.md: written\nREADME.md: written\n"
    readme, overview = (project / "README.md").read_text(), (project / "study/results/README.md").read_text()
    assert f"\n{results_table([make_record()])}\n" in readme, "runs with overrides are in study/results/README.md only"
    assert "| numbers with train.lr=1 |" in overview and "| other |" in overview
    assert main([]) == main(["--check"]) == 0
    assert capsys.readouterr().out == "every table and figure is up to date\n"
    make_record(metrics={"sacrebleu": 38.01}).write(Path("results/numbers/1.json"))
    assert main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "study: out of date: study/results/README.md, README.md; run `make study`\n"
    )
    assert (project / "README.md").read_text() == readme


def test_an_error_of_the_system_is_said_in_words(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipes/a.yaml").mkdir(parents=True)
    assert main([]) == 2
    assert capsys.readouterr().err == "study: error: recipes/a.yaml: Is a directory\n"


def test_no_records_and_a_bad_marker(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    for name in ("study/results/README.md", "README.md"):
        assert "\nNo run records yet.\n" in (project / name).read_text()
    (project / "docs").mkdir()
    for end, told in (("", "docs/a.md: a marker of study lacks its counterpart"), (" end compared.a", "no such table")):
        marker = "<!-- study: begin compared.a -->\n"
        (project / "docs/a.md").write_text(marker + marker.replace(" begin compared.a", end) * bool(end))
        assert main([]) == 2
        assert told in capsys.readouterr().err


GRADIENTS = [
    {"model": "sas", "depth": 8, "block": block, "stage": "layer1", "name": "", "sublayer": "", "gradient": 0.5}
    for block in (1, 2)
]


@pytest.fixture
def figures(project: Path, make_record: MakeRecord) -> Path:
    """The figures `gradients`, of a measurement, and `curves`, of two seeds' records."""
    folder = project / "docs" / "figures"
    Measurement(analysis="gradients", conditions={}, rows=GRADIENTS).write(folder / "measured.json")
    for seed in (1, 2):
        make_record(seed=seed).write(Path(f"results/numbers/{seed}.json"))
    LIST.parent.mkdir(exist_ok=True)
    LIST.write_text(
        "gradients:\n  source: docs/figures/measured.json\n  title: Gradients\n"
        "curves:\n  source: [results/numb*/*.json]\n  labels: {numbers: n}\n"
    )
    return folder


def test_figures_are_written_then_up_to_date_then_out_of_date(
    figures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert main([]) == 0
    names = [f"docs/figures/{name}" for name in ("gradients.csv", "gradients.svg", "curves.csv", "curves.svg")]
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()][2:] == names
    assert (figures / "curves.csv").read_text() == (
        "model,seed,epoch,quantity,value\nn,1,1,valid_loss,4.0\nn,2,1,valid_loss,4.0\nn,mean,1,valid_loss,4.0\n"
    )
    drawn = {name: Path(name).read_bytes() for name in names}

    def outdated() -> list[str]:
        status = main(["--check"])
        error = capsys.readouterr().err
        assert status == bool(error)
        return error.removeprefix("study: out of date: ").split(";")[0].split(", ")

    monkeypatch.setitem(sys.modules, "matplotlib", None)  # which neither needs where nothing is out of date
    assert main([]) == 0 and outdated() == [""]
    assert capsys.readouterr().out == "" and {name: Path(name).read_bytes() for name in names} == drawn
    changed = [{**row, "gradient": 0.25} for row in GRADIENTS]
    Measurement(analysis="gradients", conditions={}, rows=changed).write(figures / "measured.json")
    assert outdated() == names[:2]
    assert main([]) == 2
    assert "a plot needs matplotlib: install the extra plots with" in capsys.readouterr().err
    assert outdated() == names[1:2], "a picture of other data than the CSV beside it"
    Path(names[3]).unlink()
    LIST.write_text(LIST.read_text().replace("Gradients", "The gradients"))
    assert outdated() == [names[1], names[3]]


def test_figures_that_can_not_be_made_are_one_line(figures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = "study: error: study/figures.yaml: "
    for text, message in (
        ("a: {source: docs/figures/measured.json, titel: b}", f"{at}unknown key a.titel; did you mean title?"),
        ("a: {source: docs/figures/measured.json, models: [sass]}", f"{at}a: models is 'sass': expected sas (did you"),
    ):
        LIST.write_text(text)
        assert main([]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_the_committed_tables_and_figures_are_made_from_the_committed_data(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a copy without what else lies there, such as the record of `make demo`."""
    pytest.importorskip("scipy", reason="needs the extra report")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in tracked.split("\0")[:-1]:
        if (root / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).symlink_to(root / name)
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_the_papers_rows_have_their_names_here_and_our_scores(project: Path, make_record: MakeRecord) -> None:
    (project / "recipes").mkdir()
    (project / "recipes/mine.yaml").write_text(
        "kind: translation\ncorpus: numbers-en-de\nbaseline: plain\nvariants:\n"
        "  plain: {paper: [{bleu: 30.0, table: Some Table 1}, {bleu: 31.0, table: Some Table 1, note: of others}]}\n"
        "  twice: {description: '2xA, LN(2x): big', paper: [{bleu: 30.5, table: [Some Table 1, Some section 2]}]}\n"
    )
    config = {"kind": "translation", "corpus": "numbers-en-de"}
    make_record(recipe="mine", variant="plain", config=config).write(Path("results/mine/plain/1.json"))
    document = "<!-- study: begin papers -->\n<!-- study: end papers -->\n"
    (project / "README.md").write_text(document)
    assert main([]) == main(["--check"]) == 0
    readme = (project / "README.md").read_text()
    assert "|  | `mine/plain` | BLEU 30.0, BLEU 31.0 of others (Some 1) | BLEU 38.00 (1) |" in readme
    assert "| 2xA, LN(2x) | `mine/twice` | BLEU 30.5 (Some 1, Some section 2) | not run |" in readme
    make_record(recipe="mine", variant="plain", config=config, metrics={"sacrebleu": 38.1}).write(
        Path("results/mine/plain/1.json")
    )
    assert main(["--check"]) == 1
