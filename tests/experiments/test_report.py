"""Tables from records: exact text, means and deviations, files that are out of date, `rskip report`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.analysis.measurement import Measurement
from rskip.cli.main import main
from rskip.experiments.report import outdated_tables, results_table
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
    overview = outdated_tables(tmp_path, read_results(tmp_path))[tmp_path / "results" / "README.md"]
    assert "\n## cifar10\n\n| run | parameters | seeds | error, % | accuracy, % | tr" in overview
    assert (
        "\n## numbers-en-de\n\n| run | parameters | seeds | sacreBLEU | compound BLEU | exactly right, % | tr"
    ) in overview
    assert "| 27.00 (one seed) | 28.60 (one seed) | 7.50 (one seed) |" in overview and "BLEU: `split`." in overview


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
    assert capsys.readouterr().out == "every table and figure is up to date\n"
    make_record(metrics={"sacrebleu": 38.01}).write(Path("results/numbers/1.json"))
    assert main(["report", "--check"]) == 1
    assert capsys.readouterr().err == (
        "rskip report: out of date with their data: results/README.md, README.md; run `rskip report`\n"
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
    texts = outdated_tables(project, read_results(project))
    assert texts[project / "results" / "README.md"].endswith("\nNo records yet.\n")
    assert "\nNo records yet.\n" in texts[project / "README.md"]
    with pytest.raises(FileNotFoundError, match="no folder results in"):
        read_results(project / "results")


GRADIENTS = [
    {"model": "sas", "depth": 8, "block": block, "stage": "layer1", "name": "", "sublayer": "", "gradient": 0.5}
    for block in (1, 2)
]


@pytest.fixture
def figures(project: Path, make_record: MakeRecord) -> Path:
    """docs/figures/ with the figures `gradients`, of a measurement, and `curves`, of two seeds' records."""
    folder = project / "docs" / "figures"
    Measurement(analysis="gradients", conditions={}, rows=GRADIENTS).write(folder / "measured.json")
    for seed in (1, 2):
        make_record(seed=seed).write(Path(f"results/numbers/{seed}.json"))
    (folder / "figures.yaml").write_text(
        "gradients:\n  source: docs/figures/measured.json\n  title: Gradients\n"
        "curves:\n  source: [results/numb*/*.json]\n  labels: {numbers: n}\n"
    )
    return folder


def test_figures_are_written_then_up_to_date_then_out_of_date(
    figures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert main(["report"]) == 0
    names = [f"docs/figures/{name}" for name in ("gradients.csv", "gradients.svg", "curves.csv", "curves.svg")]
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()][2:] == names
    assert (figures / "curves.csv").read_text() == (
        "model,seed,epoch,quantity,value\nn,1,1,valid_loss,4.0\nn,2,1,valid_loss,4.0\nn,mean,1,valid_loss,4.0\n"
    )
    drawn = {name: Path(name).read_bytes() for name in names}

    def outdated() -> list[str]:
        status = main(["report", "--check"])
        error = capsys.readouterr().err
        assert status == bool(error)
        return error.removeprefix("rskip report: out of date with their data: ").split(";")[0].split(", ")

    monkeypatch.setitem(sys.modules, "matplotlib", None)  # which neither needs where nothing is out of date
    assert main(["report"]) == 0 and outdated() == [""]
    assert capsys.readouterr().out == "" and {name: Path(name).read_bytes() for name in names} == drawn
    changed = [{**row, "gradient": 0.25} for row in GRADIENTS]
    Measurement(analysis="gradients", conditions={}, rows=changed).write(figures / "measured.json")
    assert outdated() == names[:2]
    assert main(["report"]) == 2
    assert "a picture needs matplotlib: pip install" in capsys.readouterr().err
    assert outdated() == names[1:2], "a picture of other data than the CSV beside it"
    Path(names[3]).unlink()
    (figures / "figures.yaml").write_text((figures / "figures.yaml").read_text().replace("Gradients", "The gradients"))
    assert outdated() == [names[1], names[3]]


def test_figures_that_can_not_be_made_are_one_line(figures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = "rskip report: error: docs/figures/figures.yaml: "
    for text, message in (
        ("a: {source: results/x.json}", f"{at}a.source is 'results/x.json': expected a file that is there"),
        ("a: {source: [/x.json]}", f"{at}a.source is ['/x.json']: expected a file in docs/figures/ or results/"),
        ("a: {source: results/../x.json}", f"{at}a.source is 'results/../x.json': expected a file in docs/figures/"),
        ("a: {source: docs/figures/measured.json, titel: b}", f"{at}unknown key a.titel; did you mean title?"),
        ("a: {title: b}", f"{at}a.source is missing: expected a file in docs/figures/ or results/"),
        ("A b: {}", f"{at}A b is a key: expected a name of a-z, 0-9 and _"),
        ("a: {source: docs/figures/measured.json, models: [sass]}", f"{at}a.models is 'sass': expected sas; did you"),
        ("a: {source: [results/*/1.json, docs/figures/measured.json]}", f"{at}a curves and gradients in one figure: "),
        (
            "a: {source: docs/figures/measured.json, kind: maps}",
            f"{at}a.kind is 'maps': expected blocks, cells, curves,",
        ),
        ("a: {source: docs/figures/figures.yaml}", "docs/figures/figures.yaml: not valid JSON"),
        ("a: {source: docs/figures/a.jsonl}", f"{at}a.source is 'docs/figures/a.jsonl': expected RUN/SEED.probe.jsonl"),
    ):
        (figures / "a.jsonl").touch()
        (figures / "figures.yaml").write_text(text)
        for command in (["report"], ["report", "--check"]):
            assert main(command) == 2
            error = capsys.readouterr().err
            assert message in error and error.count("\n") == 1


def test_the_committed_tables_and_figures_are_made_from_the_committed_data(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a copy without what else lies there, such as the record of `make demo`."""
    pytest.importorskip("scipy", reason="the committed tables have statistics: pip install -e '.[report]'")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in tracked.split("\0")[:-1]:
        if (root / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).symlink_to(root / name)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--check"]) == 0, capsys.readouterr().err
