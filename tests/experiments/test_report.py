"""Tables of runs: exact text, means and deviations, records that disagree, `rskip report`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.experiments.overview import overview, results_table
from rskip.experiments.recipe import load_recipe
from rskip.experiments.results import check_agreement, read_results
from rskip.records import Record
from rskip.settings.errors import SettingError
from rskip.tasks import dataset_of_record

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


def test_a_metric_that_a_run_lacks_is_left_blank_and_one_that_all_lack_has_no_column(make_record: MakeRecord) -> None:
    table = results_table([make_record(recipe="a", metrics={"chrf": 1.0}, signatures={}), make_record(recipe="b")])
    assert "| a | 1,037,568 | 1 |  | 1.00 (one seed) |" in table
    assert "exactly right" not in table


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


def test_signatures_that_differ_name_their_runs(make_record: MakeRecord) -> None:
    table = results_table([make_record(recipe="a"), make_record(recipe="b", signatures={"sacrebleu": "other"})])
    assert "sacreBLEU of a: `nrefs:1|tok:13a`.  \nsacreBLEU of b: `other`.\n" in table


def test_an_overridden_run_is_a_row_that_says_what_was_changed(make_record: MakeRecord) -> None:
    changed = make_record(overrides={"train.lr": 0.003})
    assert "| numbers with train.lr=0.003 |" in results_table([make_record(), changed])


def test_a_gpu_is_named_in_place_of_the_cpu(make_record: MakeRecord) -> None:
    machine = {"cpu": "Zuse Z4", "cores": 2, "threads": 1, "gpu": "H200"}
    assert "| H200 |" in results_table([make_record(machine=machine)])
    assert "| 8 × H200 |" in results_table([make_record(machine={**machine, "gpus": 8})])
    assert "| Zuse Z4, 1 thread |" in results_table([make_record(machine={**machine, "gpu": None})])


def test_seeds_that_can_not_be_averaged_are_an_error(make_record: MakeRecord) -> None:
    other = {"corpus": "numbers-en-de", "train": {"lr": 0.003}}
    for change, message in (
        ({"config": other}, r"results/numbers/1.json and results/numbers/2.json .*train.lr: 0.005, now 0.003"),
        ({"signatures": {"sacrebleu": "other"}}, "scored differently"),
    ):
        with pytest.raises(ValueError, match=message):
            results_table([make_record(), make_record(seed=2, **change)])


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        ("vision", {"train": {}}, "config.train.dataset is missing: expected text"),
        ("vision", {}, "config.train is missing: expected keys and values"),
        ("translation", {"corpus": None}, "config.corpus is None: expected text"),
        ("captioning", {"corpus": "flickr8k", "evaluate": []}, r"config.evaluate is \[\]: expected keys and values"),
    ],
)
def test_a_config_that_says_no_dataset_is_one_line(kind, config, said, make_record: MakeRecord) -> None:
    with pytest.raises(SettingError, match=rf"^results/numbers/1.json: {said}$"):
        dataset_of_record(make_record(kind=kind, config=config))


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


def test_a_figure_that_disagrees_with_its_record_was_edited(make_record: MakeRecord) -> None:
    vision = {"kind": "vision", "curve": [{"epoch": 1, "test_error": 9.71, "test_loss": 0.28024}], "signatures": {}}
    captions = {"kind": "captioning", "curve": [{"epoch": 1, "valid_loss": 5.6}], "signatures": {}}
    bfloat16 = {"seconds": 600.0, "pieces": 1, "precision": "bfloat16"}
    for kind, metrics, wrong in (
        (vision, {"error": 9.71, "accuracy": 90.29, "test_loss": 0.2802}, ""),
        (vision, {"error": 9.7, "accuracy": 90.3}, "metrics.error is 9.7: expected 9.7100"),
        ({**vision, "training": bfloat16}, {"error": 9.7, "accuracy": 90.3}, ""),  # which its curve is, not its score
        (vision, {"error": 9.71, "accuracy": 90.3}, "metrics.accuracy is 90.3: expected 90.2900"),
        (captions, {"cider": 40.0, "valid_loss": 5.6}, ""),
        (captions, {"cider": 40.0, "valid_loss": 5.5}, "metrics.valid_loss is 5.5: expected 5.6000"),
    ):
        record = make_record(**kind, metrics=metrics)
        if not wrong:
            check_agreement(record)
            continue
        with pytest.raises(ValueError, match=wrong):
            check_agreement(record)


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


def test_a_record_under_a_runs_old_name_counts_for_its_address(
    project: Path, make_record: MakeRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "recipes").mkdir()
    (project / "recipes/mine.yaml").write_text(
        "kind: translation\ncorpus: numbers-en-de\ntrain: {arch: x, max-tokens: 4000, max-epoch: 12}\n"
        "baseline: a\nvariants: {a: {}, b: {train: {lr: 1.0}}}\n"
    )
    for variant in ("a", "b"):
        record = make_record(recipe=f"mine_{variant}", config=load_recipe(f"mine/{variant}").config)
        record.write(record.path)
        content = json.loads(record.path.read_text()) | {"schema": 1, "run": f"mine_{variant}"}
        del content["variant"]
        record.path.write_text(json.dumps(content))
    assert [record.run for record in read_results(project).records] == ["mine/a", "mine/b"]
    assert main(["report", "mine"]) == 0
    printed = capsys.readouterr().out
    assert "mine/a" in printed and printed.count("38.00 (one seed)") == 2
    assert main(["run", "mine/a", "--commands"]) == 0 and capsys.readouterr().out == ""
    assert main(["analyse", "curves", "mine_a"]) == 0 and "mine/a" in capsys.readouterr().out
    Path("runs/mine_a/2").mkdir(parents=True)
    Path("runs/mine_a/2/train.log").touch()
    assert main(["report", "mine"]) == 0
    assert "runs/mine_a/2 is unfinished" in capsys.readouterr().err


def test_two_recipes_of_one_name_are_not_reported_together(project: Path) -> None:
    files = [project / folder / "recipe.yaml" for folder in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("kind: translation\n")
    with pytest.raises(SettingError, match="recipe.yaml and .*recipe.yaml have the same name; report one of them at a"):
        read_results(project, files=files)
    read_results(project, files=[files[0], files[0]])


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
