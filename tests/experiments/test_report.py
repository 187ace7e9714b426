"""Tables of runs: exact text, means and deviations, records that disagree, `rskip report`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.experiments.results import overview, read_results, results_table
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


def test_seeds_that_diverged_are_counted(make_record: MakeRecord) -> None:
    diverged = {"metrics": {}, "signatures": {}, "checkpoint_sha256": None}
    table = results_table(
        [
            make_record(**diverged),
            make_record(seed=2),
            make_record(seed=3, metrics={"sacrebleu": 39.0, "chrf": 60.0}),
            make_record(recipe="other", **diverged),
        ]
    )
    assert "| numbers | 1,037,568 | 1, 2, 3 | 38.50 ± 0.71 (2 seeds), 1 diverged | 60.00 ± 0.00 (2 seeds), 1" in table
    assert "| other | 1,037,568 | 1 | diverged | diverged |" in table and "`nrefs:1|tok:13a`" in table


def test_a_metric_that_only_some_seeds_have_tells_their_number(make_record: MakeRecord) -> None:
    metrics, signatures = {"sacrebleu": 38.0}, {"sacrebleu": "nrefs:1|tok:13a"}
    more = {"metrics": {**metrics, "chrf": 60.0}, "signatures": {**signatures, "chrf": "nc:6"}}
    old = make_record(metrics=metrics, signatures=signatures)
    table = results_table([old, make_record(seed=2, **more), make_record(seed=3, **more)])
    assert "| 1, 2, 3 | 38.00 ± 0.00 (3 seeds) | 60.00 ± 0.00 (2 seeds) |" in table
    assert table.endswith("sacreBLEU: `nrefs:1|tok:13a`.  \nchrF: `nc:6`.\n")
    other = make_record(seed=3, **{**more, "signatures": {**signatures, "chrf": "nc:4"}})
    with pytest.raises(ValueError, match=r"numbers/2.json and .*numbers/3.json were scored differently"):
        results_table([old, make_record(seed=2, **more), other])


def test_a_gpu_is_named_in_place_of_the_cpu(make_record: MakeRecord) -> None:
    machine = {"cpu": "Zuse Z4", "cores": 2, "threads": 1, "gpu": "H200"}
    assert "| H200 |" in results_table([make_record(machine=machine)])
    assert "| 8 × H200 |" in results_table([make_record(machine={**machine, "gpus": 8})])
    assert "| Zuse Z4, 1 thread |" in results_table([make_record(machine={**machine, "gpu": None})])


def test_seeds_that_can_not_be_averaged_are_an_error(make_record: MakeRecord) -> None:
    other = {"corpus": "numbers-en-de", "train": {"lr": 0.003}}
    for change, message in (
        ({"config": other}, r"numbers/1.json and results/numbers/2.json have different settings \(kind, train\)"),
        ({"signatures": {"sacrebleu": "other"}}, "scored differently"),
        ({"data": {"files_sha256": "0" * 64}}, "different data"),
        ({"data": {"sha256": {"train": "0" * 64}}}, "different data"),
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
    text = overview(read_results(tmp_path).records)
    assert "## cifar10\n\n| run | parameters | seeds | error, % | accuracy, % | tr" in text
    assert (
        "\n## numbers-en-de\n\n| run | parameters | seeds | sacreBLEU | compound BLEU | exactly right, % | tr"
    ) in text
    assert "| 27.00 (one seed) | 28.60 (one seed) | 7.50 (one seed) |" in text and "BLEU: `split`." in text


def test_a_folder_of_records_within_another_is_counted_once(make_record: MakeRecord, tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    text = "kind: translation\ncorpus: numbers-en-de\nresults: results/own\ntrain: {connection: sas}\n"
    (tmp_path / "recipes" / "mine.yaml").write_text(text)
    make_record(recipe="mine").write(tmp_path / "results" / "own" / "mine" / "1.json")
    assert [each.seed for each in read_results(tmp_path).records] == [1]


def test_own_data_of_one_name_is_told_apart_by_its_content(make_record: MakeRecord) -> None:
    own = [
        make_record(recipe=name, config={"corpus": "own-en-de", "data": folder, "data_sha256": digit * 64})
        for name, folder, digit in (("a", "one", "1"), ("b", "two", "2"))
    ]
    photos = {"kind": "vision", "train": {"data": "own-photos", "dataset": "images"}}
    images = make_record(recipe="v", kind="vision", config=photos, metrics={"error": 8.0}, signatures={})
    text = overview([*own, images])
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## own-en-de, one (11111111)", "## own-en-de, two (22222222)", "## own-photos"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_name_all_runs_are_printed(
    project: Path, make_record: MakeRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report"]) == 0 and capsys.readouterr().out == "No run records yet.\n"
    for record in (make_record(), make_record(overrides={"train.lr": 1}), make_record(recipe="other")):
        record.write(record.path)
    assert main(["report"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("## numbers-en-de\n\n" + HEADINGS)
    assert [line.split(" | ")[0] for line in printed.splitlines() if "Zuse" in line] == [
        "| numbers", "| numbers with train.lr=1", "| other"
    ]  # fmt: skip


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
    Path("results/numbers/1.json").unlink()
    with pytest.raises(FileNotFoundError, match="no run records in .*/results/results: run a recipe here first, or"):
        read_results(project / "results")
