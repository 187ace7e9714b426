"""Tables from records: exact text, means and deviations, markers in documents."""

from __future__ import annotations

from pathlib import Path

import pytest
from rskip.experiments.results_table import results_table

from rskip.experiments.report import fill_in_tables, find_outdated, make_tables, write_tables

HEADINGS = (
    "| run | parameters | seeds | sacreBLEU | chrF | training, minutes | machine |\n" + "| --- " * 7 + "|\n"
)


def test_several_seeds_give_mean_and_sample_deviation_with_their_number(make_record) -> None:
    seeds = [
        make_record(seed=s, metrics={"sacrebleu": b, "chrf": 60.0})
        for s, b in ((1, 37.0), (2, 38.0), (3, 39.0))
    ]
    assert results_table(seeds) == HEADINGS + (
        "| numbers | 1,037,568 | 1, 2, 3 | 38.00 ± 1.00 (3 seeds) | 60.00 ± 0.00 (3 seeds) | 10 "
        "| Zuse Z4, 2 threads |\n"
        "\n± is the sample standard deviation over seeds.  \nsacreBLEU: `nrefs:1|tok:13a`.\n"
    )


def test_one_seed_is_said_to_be_one_and_has_no_deviation(make_record) -> None:
    table = results_table([make_record()])
    assert "| 38.00 (one seed) | 60.00 (one seed) |" in table
    assert "±" not in table


def test_a_metric_that_a_run_lacks_is_left_blank_and_one_that_all_lack_has_no_column(make_record) -> None:
    table = results_table(
        [make_record(recipe="a", metrics={"chrf": 1.0}, signatures={}), make_record(recipe="b")]
    )
    assert "| a | 1,037,568 | 1 |  | 1.00 (one seed) |" in table
    assert "exactly right" not in table


def test_signatures_that_differ_name_their_runs(make_record) -> None:
    table = results_table(
        [make_record(recipe="a"), make_record(recipe="b", signatures={"sacrebleu": "other"})]
    )
    assert "sacreBLEU of a: `nrefs:1|tok:13a`.  \nsacreBLEU of b: `other`.\n" in table


def test_an_overridden_run_is_a_row_that_says_what_was_changed(make_record) -> None:
    changed = make_record(run="numbers-12345678", overrides={"train.lr": 0.003})
    assert "| numbers with train.lr=0.003 |" in results_table([make_record(), changed])


def test_a_gpu_is_named_in_place_of_the_cpu(make_record) -> None:
    machine = {"cpu": "Zuse Z4", "cores": 2, "threads": 2, "gpu": "H200"}
    assert "| H200 |" in results_table([make_record(machine=machine)])
    assert "| 8 × H200 |" in results_table([make_record(machine={**machine, "gpus": 8})])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"corpus": "numbers-en-de", "train": {"lr": 0.003}}}, "train.lr: 0.005 there, 0.003 now"),
        ({"signatures": {"sacrebleu": "other"}}, "scored differently"),
    ],
)
def test_seeds_that_can_not_be_averaged_are_an_error(make_record, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        results_table([make_record(), make_record(seed=2, **change)])


def test_tables_between_markers_follow_their_pattern_and_the_rest_of_the_text_stays(make_record) -> None:
    records = [make_record(recipe="a_x"), make_record(recipe="a_y"), make_record(recipe="b")]
    records.append(make_record(recipe="a_x", run="a_x-1", overrides={"train.lr": 1}))
    text = "before\n<!-- rskip report: begin a_* -->\nold\n<!-- rskip report: end a_* -->\nafter\n"
    filled = fill_in_tables(text, records, source="README.md")
    table = results_table(records[:2])
    begin, end = "<!-- rskip report: begin a_* -->", "<!-- rskip report: end a_* -->"
    assert filled == f"before\n{begin}\n\n{table}\n{end}\nafter\n"
    assert fill_in_tables(filled, records, source="README.md") == filled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- rskip report: begin a -->\n", "README.md: the table a has no end marker"),
        ("x\n<!-- rskip report: end a -->\n", "README.md, line 2: "),
        ("<!-- rskip report: begin a -->\n<!-- rskip report: end b -->\n", "README.md, line 2: "),
        ("<!-- rskip report: begin a -->\n<!-- rskip report: begin a -->\n", "README.md, line 2: "),
        ("see <!-- rskip report: begin a -->\n", "README.md, line 1: expected"),
    ],
)
def test_wrong_markers_are_named_by_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        fill_in_tables(text, [], source="README.md")
    assert str(error.value).startswith(message)


def test_files_are_written_once_and_found_out_of_date_when_a_record_changes(
    make_record, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "plain.md").write_text("no tables\n")
    guide = tmp_path / "docs" / "guide.md"
    guide.write_text("<!-- rskip report: begin numbers -->\n<!-- rskip report: end numbers -->\n")
    make_record().write(tmp_path / "results/numbers/1.json")
    overview = tmp_path / "results" / "README.md"
    assert write_tables(tmp_path) == [overview, guide]
    assert write_tables(tmp_path) == find_outdated(tmp_path) == []
    assert "## numbers-en-de\n\n| run |" in overview.read_text()
    assert "38.00 (one seed)" in guide.read_text()
    make_record(metrics={"sacrebleu": 38.01}).write(tmp_path / "results/numbers/1.json")
    assert find_outdated(tmp_path) == [overview, guide]


def test_no_records_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder results"):
        make_tables(tmp_path)
    (tmp_path / "results").mkdir()
    assert make_tables(tmp_path)[tmp_path / "results" / "README.md"].endswith("\nNo records yet.\n")


def test_runs_of_vision_have_their_own_columns_and_heading(make_record, tmp_path: Path) -> None:
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
    for record in (*seeds, make_record(metrics={"sacrebleu": 38.0, "accuracy": 7.5})):
        record.write(tmp_path / record.path)
    overview = make_tables(tmp_path)[tmp_path / "results" / "README.md"]
    assert "\n## cifar10\n\n| run | parameters | seeds | error, % | accuracy, % | tr" in overview
    assert "\n## numbers-en-de\n\n| run | parameters | seeds | sacreBLEU | exactly right, % | tr" in overview
