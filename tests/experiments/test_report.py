"""Tables from records: exact text, means and deviations, files that are out of date, `rskip report`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.experiments.report import outdated_tables, results_table
from rskip.records import Record

MakeRecord = Callable[..., Record]
HEADINGS = "| run | parameters | seeds | sacreBLEU | chrF | training, minutes | machine |\n" + "| --- " * 7 + "|\n"


def test_several_seeds_give_mean_and_sample_deviation_with_their_number(make_record: MakeRecord) -> None:
    seeds = [make_record(seed=seed, metrics={"sacrebleu": 36.0 + seed, "chrf": 60.0}) for seed in (1, 2, 3)]
    assert results_table(seeds) == HEADINGS + (
        "| numbers | 1,037,568 | 1, 2, 3 | 38.00 ± 1.00 (3 seeds) | 60.00 ± 0.00 (3 seeds) | 10 "
        "| Zuse Z4, 2 threads |\n"
        "\n± is the sample standard deviation over seeds.  \nsacreBLEU: `nrefs:1|tok:13a`.\n"
    )


def test_one_seed_is_said_to_be_one_and_has_no_deviation(make_record: MakeRecord) -> None:
    table = results_table([make_record()])
    assert "| 38.00 (one seed) | 60.00 (one seed) |" in table
    assert "±" not in table


def test_a_metric_that_a_run_lacks_is_left_blank_and_one_that_all_lack_has_no_column(make_record: MakeRecord) -> None:
    table = results_table([make_record(recipe="a", metrics={"chrf": 1.0}, signatures={}), make_record(recipe="b")])
    assert "| a | 1,037,568 | 1 |  | 1.00 (one seed) |" in table
    assert "exactly right" not in table


def test_signatures_that_differ_name_their_runs(make_record: MakeRecord) -> None:
    table = results_table([make_record(recipe="a"), make_record(recipe="b", signatures={"sacrebleu": "other"})])
    assert "sacreBLEU of a: `nrefs:1|tok:13a`.  \nsacreBLEU of b: `other`.\n" in table


def test_an_overridden_run_is_a_row_that_says_what_was_changed(make_record: MakeRecord) -> None:
    changed = make_record(run="numbers-12345678", overrides={"train.lr": 0.003})
    assert "| numbers with train.lr=0.003 |" in results_table([make_record(), changed])


def test_a_gpu_is_named_in_place_of_the_cpu(make_record: MakeRecord) -> None:
    machine = {"cpu": "Zuse Z4", "cores": 2, "threads": 1, "gpu": "H200"}
    assert "| H200 |" in results_table([make_record(machine=machine)])
    assert "| 8 × H200 |" in results_table([make_record(machine={**machine, "gpus": 8})])
    assert "| Zuse Z4, 1 thread |" in results_table([make_record(machine={**machine, "gpu": None})])


def test_seeds_that_can_not_be_averaged_are_an_error(make_record: MakeRecord) -> None:
    other = {"corpus": "numbers-en-de", "train": {"lr": 0.003}}
    for change, message in (
        ({"config": other}, r"results/numbers/1.json and results/numbers/2.json .*train.lr: 0.005 there, 0.003 now"),
        ({"signatures": {"sacrebleu": "other"}}, "scored differently"),
    ):
        with pytest.raises(ValueError, match=message):
            results_table([make_record(), make_record(seed=2, **change)])


def test_each_task_has_its_own_columns_and_each_dataset_its_heading(make_record: MakeRecord, tmp_path: Path) -> None:
    config = {"kind": "vision", "train": {"dataset": "cifar10", "depth": 20}}
    seeds = [
        make_record(
            recipe="v", kind="vision", config=config, seed=seed, signatures={},
            metrics={"error": error, "accuracy": 100 - error, "test_loss": 0.3},
        )
        for seed, error in ((1, 8.0), (2, 9.0))
    ]  # fmt: skip
    assert results_table(seeds) == (
        "| run | parameters | seeds | error, % | accuracy, % | training, minutes | machine |\n" + "| --- " * 7 + "|\n"
        "| v | 1,037,568 | 1, 2 | 8.50 ± 0.71 (2 seeds) | 91.50 ± 0.71 (2 seeds) | 10 | Zuse Z4, 2 threads |\n"
        "\n± is the sample standard deviation over seeds.\n"
    )
    metrics = {"sacrebleu": 27.0, "compound_split_bleu": 28.6, "accuracy": 7.5}
    for record in (*seeds, make_record(metrics=metrics, signatures={"compound_split_bleu": "split"})):
        record.write(tmp_path / record.path)
    overview = outdated_tables(tmp_path)[tmp_path / "results" / "README.md"]
    assert "\n## cifar10\n\n| run | parameters | seeds | error, % | accuracy, % | tr" in overview
    assert (
        "\n## numbers-en-de\n\n| run | parameters | seeds | sacreBLEU | compound BLEU | exactly right, % | tr"
    ) in overview
    assert "| 27.00 (one seed) | 28.60 (one seed) | 7.50 (one seed) |" in overview and "BLEU: `split`." in overview


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "README.md").write_text("<!-- rskip report: begin n* -->\n<!-- rskip report: end n* -->\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_are_written_then_up_to_date_then_out_of_date(
    project: Path, make_record: MakeRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "docs").mkdir()
    (project / "docs" / "guide.md").write_text("no tables\n")
    for record in (make_record(), make_record(run="numbers-1", overrides={"train.lr": 1}), make_record(recipe="other")):
        record.write(record.path)
    assert main(["report"]) == 0
    assert capsys.readouterr().out == "results/README.md: written\nREADME.md: written\n"
    readme, overview = (project / "README.md").read_text(), (project / "results/README.md").read_text()
    assert f"\n{results_table([make_record()])}\n" in readme, "runs with overrides are in results/README.md alone"
    assert "| numbers with train.lr=1 |" in overview and "| other |" in overview
    assert main(["report"]) == main(["report", "--check"]) == 0
    assert capsys.readouterr().out == "every table is up to date\n"
    make_record(metrics={"sacrebleu": 38.01}).write(Path("results/numbers/1.json"))
    assert main(["report", "--check"]) == 1
    assert capsys.readouterr().err == (
        "rskip report: out of date with the records in results/: results/README.md, README.md; run `rskip report`\n"
    )
    assert (project / "README.md").read_text() == readme


def test_what_can_not_be_made_into_tables_is_one_line(
    project: Path, make_record: MakeRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    make_record().write(Path("results/numbers/1.json"))
    content = json.loads(Path("results/numbers/1.json").read_text())
    for text in ("{", "[]", '{"schema": 1}', json.dumps({**content, "kind": "vison"})):
        Path("results/numbers/1.json").write_text(text)
        assert main(["report"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("rskip report: error: results/numbers/1.json: ") and error.count("\n") == 1
    assert not Path("results/README.md").exists()
    Path("results/numbers/1.json").unlink()
    Path("docs").mkdir()
    Path("docs/a.md").write_text("<!-- rskip report: begin a -->\n")
    assert main(["report"]) == 2
    assert "docs/a.md: the table a has no end marker" in capsys.readouterr().err


def test_no_records_and_no_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = outdated_tables(project)
    assert texts[project / "results" / "README.md"].endswith("\nNo records yet.\n")
    assert "\nNo records yet.\n" in texts[project / "README.md"]
    with pytest.raises(FileNotFoundError, match="no folder results in"):
        outdated_tables(project / "results")


def test_the_committed_tables_are_made_from_the_committed_records(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert main(["report", "--check"]) == 0, capsys.readouterr().err
