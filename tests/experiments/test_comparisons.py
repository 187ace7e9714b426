"""Tables that compare runs: exact text in each format, statistics over seeds, what one seed can't say, bad records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.experiments.comparisons import LEGEND
from rskip.experiments.recipe import all_recipes, load_recipe
from rskip.experiments.results import Results
from rskip.records import Record

MakeRecord = Callable[..., Record]
RECIPE = """
kind: translation
corpus: numbers-en-de
train: {arch: transformer_rskip_ln_tiny, lr: 0.005, max-tokens: 4000, max-epoch: 12}
baseline: plain
variants:
  plain:
    paper: [{bleu: 30.0, table: Some Table 1}, {bleu: 31.0, table: Some Table 1, note: of others}]
  twice:
    train: {clip-norm: 1.0}
    paper: [{bleu: 30.5, table: [Some Table 1, Some section 2]}]
  thrice: {}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the sweep recipes/mine.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def record(project: Path, make_record: MakeRecord) -> Callable[..., Record]:
    """`record("twice", 1, 38.0)` makes and writes the record of a variant and a seed."""

    def make(variant: str, seed: int, bleu: float, **changes: object) -> Record:
        config = load_recipe(f"mine/{variant}").config
        content = {"config": config, "metrics": {"sacrebleu": bleu}, "training": TRAINING}
        made = make_record(recipe="mine", variant=variant, seed=seed, **{**content, **changes})
        made.write(made.path)
        return made

    return make


TRAINING = {"seconds": 60.0, "pieces": 1, "precision": "float32"}
COMMAND = "rskip run recipes/mine.yaml --variants"


def test_a_table_without_records_has_the_papers_figures_and_the_commands_that_fill_it(project: Path) -> None:
    tables = Results(all_recipes(), [])
    assert tables.names == ("some-table-1", "some-section-2", "mine")
    table = tables.table("some-table-1", seeds=[1, 7])
    assert table.render("text").splitlines() == [
        "Some Table 1",
        "",
        "variant               paper's BLEU  paper's difference  our BLEU",
        "mine/plain  30.0; 31.0 (of others)",
        "mine/twice                    30.5               +0.50",
        "",
        "No variant has a run record yet.",
        "The papers name no scorer for some of their scores; ours is the main metric of `rskip report RECIPE`.",
        "mine/twice and its baseline differ in train.clip-norm: 1.0 against the default.",
        "",
        "Missing:",
        "",
        f"    {COMMAND} plain twice --seeds 1 7",
    ]


def test_another_baseline_is_chosen_on_the_command_line(
    project: Path, record: Callable[..., Record], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    for variant, bleu in (("plain", 38.0), ("twice", 39.0)):
        record(variant, 1, bleu)
    for name in ("mine", "recipes/mine.yaml"):
        assert main(["report", name, "--baseline", "twice", "--format", "markdown"]) == 0
        printed = capsys.readouterr().out
        assert "| mine/plain | 38.00 (one seed) | -1.00 (one pair) |" in printed
        assert "| mine/twice | 39.00 (one seed) |  |" in printed
    elsewhere = project / "elsewhere.yaml"
    elsewhere.write_text(RECIPE.replace("baseline: plain\n", ""))
    assert main(["report", str(elsewhere), "--baseline", "twice"]) == 0
    assert f"rskip run {elsewhere} --variants plain twice thrice --seeds 1 2 3" in capsys.readouterr().out
    for arguments, message in (
        (["mine", "--baseline", "twic"], "--baseline is 'twic': expected a variant of mine (did you mean 'twice'?)"),
        (["some-table-1", "--baseline", "twice"], "expected a recipe with variants, which some-table-1"),
        (["--format", "csv"], "--format is given without NAME: leave it out"),
    ):
        assert main(["report", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_without_a_baseline_the_scores_of_each_variant_are_shown(
    project: Path, record: Callable[..., Record], capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "recipes" / "mine.yaml").write_text(RECIPE.replace("baseline: plain\n", ""))
    for seed, bleu in ((1, 38.0), (2, 39.0)):
        record("twice", seed, bleu)
    assert main(["report", "mine", "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "| variant | our sacreBLEU |\n| --- | --- |\n"
        "| mine/plain |  |\n| mine/twice | 38.50 ± 0.71 (2) |\n| mine/thrice |  |\n"
    )


def test_tokenised_bleu_is_shown_if_no_record_has_sacrebleu(project: Path, record: Callable[..., Record]) -> None:
    tokens = {"metrics": {"tokenised_bleu": 25.0}, "signatures": {}}
    records = [record(variant, 1, 0.0, **tokens) for variant in ("plain", "twice")]
    table = Results(all_recipes(), records).table("mine")
    assert table.headings[1] == "our tokenised BLEU" and table.rows[0][1] == "25.00 (one seed)"
    records.append(record("thrice", 1, 38.0))
    table = Results(all_recipes(), records).table("mine")
    assert [row[1] for row in table.rows] == ["", "", "38.00 (one seed)"]


def test_another_setting_is_compared_in_pairs_and_one_seed_not_at_all(
    project: Path, record: Callable[..., Record]
) -> None:
    pytest.importorskip("scipy")
    records = [record("plain", seed, bleu) for seed, bleu in ((1, 38.0), (2, 39.0), (3, 37.0))]
    records += [record("twice", seed, bleu) for seed, bleu in ((1, 39.0), (2, 40.1), (3, 37.9))]
    records += [record("thrice", 3, 37.5)]
    table = Results(all_recipes(), records).table("mine")
    assert table.render("markdown") == (
        "| variant | our sacreBLEU | difference | p | MDE |\n| --- | --- | --- | --- | --- |\n"
        "| mine/plain | 38.00 ± 1.00 (3) |  |  |  |\n"
        "| mine/twice | 39.00 ± 1.10 (3) | **+1.00 [+0.75, +1.25] (3 pairs)** | 0.003 | 0.33 |\n"
        "| mine/thrice | 37.50 (one seed) | +0.50 (one pair) |  |  |\n\n"
        "sacreBLEU: `nrefs:1|tok:13a`.  \n"
        "mine/twice and its baseline differ in train.clip-norm: 1.0 against the default.  \n"
        f"{LEGEND[0]}  \n{LEGEND[1]}\n\n"
        f"Missing:\n\n    {COMMAND} thrice --seeds 1 2\n"
    )
    assert "mine/twice & 39.00 $\\pm$ 1.10 (3) & \\textbf{+1.00 [+0.75, +1.25] (3 pairs)} & 0.003 & 0.33 \\\\\n" in (
        table.render("latex")
    )
    twice = table.render("csv").splitlines()[2]
    assert twice == "mine/twice,,sacrebleu,mine/plain,1 2 3,,,39.0,1.1,1.0,0.7516,1.2484,0.0033,0.3264,,"


def test_variants_that_differ_in_the_connection_share_a_deviation_and_the_rest_stays_apart(
    project: Path, record: Callable[..., Record]
) -> None:
    pytest.importorskip("scipy")
    (project / "recipes" / "mine.yaml").write_text(f"{RECIPE}  fourth: {{train: {{connection: sas}}}}\n")
    figures = {"plain": (38.0, 39.0, 37.0), "thrice": (40.0, 38.5), "fourth": (42.0, 41.0, 41.5)}
    records = [record(variant, seed, bleu) for variant, bleus in figures.items() for seed, bleu in enumerate(bleus, 1)]
    before = Results(all_recipes(), records).table("mine")
    records += [record("twice", seed, bleu) for seed, bleu in enumerate((60.0, 10.0, 80.0), 1)]
    table = Results(all_recipes(), records).table("mine")
    assert table.rows[2:] == before.rows[2:]
    assert [row[2] for row in table.rows] == [
        "", "+12.00 [-79.98, +103.98] (3 pairs)", "+1.25 [-1.12, +3.62]", "+3.50 [+1.38, +5.62]",
    ]  # fmt: skip
    assert [note for note in table.notes if note.startswith("Seeds")] == [
        "Seeds needed to detect the measured difference with probability 0.8, if it is true: mine/twice 77, "
        "mine/thrice 10.",
    ]


def test_a_precision_that_the_variants_do_not_share_is_said(project: Path, record: Callable[..., Record]) -> None:
    text = RECIPE.replace("thrice: {}", "thrice: {train: {bf16: true}}")
    (project / "recipes" / "mine.yaml").write_text(text)
    notes = Results(all_recipes(), []).table("mine").notes
    assert "mine/thrice and its baseline differ in train.bf16: True against the default." in notes
    records = [record("plain", 1, 38.0), record("thrice", 1, 39.0)]
    notes = Results(all_recipes(), records).table("mine").notes
    assert not any(note.startswith("mine/thrice") for note in notes), "asked for another, computed in the same"
    other = {**TRAINING, "precision": None}
    records[1] = record("thrice", 1, 39.0, training=other)
    notes = Results(all_recipes(), records).table("mine").notes
    assert "Precision not recorded for all seeds: mine/thrice." in notes
    assert not any("differ in" in note for note in notes if note.startswith("mine/thrice"))
    records[1] = record("thrice", 1, 39.0, training={**TRAINING, "precision": "bfloat16"})
    notes = Results(all_recipes(), records).table("mine").notes
    assert "mine/thrice and its baseline differ in precision: bfloat16 against float32." in notes
    records[1] = record("thrice", 1, 39.0, data={"files_sha256": "0" * 64})
    notes = Results(all_recipes(), records).table("mine").notes
    assert "mine/thrice and its baseline differ in the content of the data." in notes


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_what_is_wrong_is_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no table some-table-2 (did you mean 'some-table-1'?)" in error_of(capsys, "some-table-2")
    (project / "recipes" / "mine.yaml").write_text(RECIPE.replace("baseline: plain", "baseline: plane"))
    said = "mine.yaml, variant plain: baseline is 'plane': expected a variant of the file (did you mean 'plain'?)"
    assert said in error_of(capsys, "mine")
