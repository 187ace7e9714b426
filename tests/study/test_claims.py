"""The ledger of claims: verdicts from figures, tests and tables, their page, and what is wrong with a claim."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.experiments.recipe import all_recipes
from rskip.experiments.results import Results
from rskip.records import Record
from rskip.settings.errors import SettingError
from study.claims import FILE, claims_page, judge_claims

MakeRecord = Callable[..., Record]
ROWS = [
    {"model": model, "block": block, "gradient": gradient}
    for model, gradients in (("1xskip", (4.0, 3.0, 2.0, 1.0)), ("2xskip", (8.0, 8.0, 1.0, 2.0)))
    for block, gradient in enumerate(gradients, 1)
]
RECIPE = "kind: translation\ncorpus: a\nbaseline: plain\nvariants: {plain: {}, twice: {}, thrice: {}}\n"
COMPARED = "compared: [{table: %s, variants: [%s], are: lower}]"


@pytest.fixture
def project(tmp_path: Path, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a measurement, a recipe, a test, and records: `twice` is 4 above the baseline."""
    monkeypatch.chdir(tmp_path)
    for folder in ("docs/figures", "recipes", "study", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    content = {"analysis": "gradients", "conditions": {}, "rows": ROWS}
    (tmp_path / "docs/figures/a.json").write_text(json.dumps(content))
    (tmp_path / "recipes/mine.yaml").write_text(RECIPE)
    (tmp_path / "tests/test_a.py").write_text("def test_it():\n    pass\n")
    for variant, figures in {"plain": (38.0, 39.0, 37.0), "twice": (42.0, 43.1, 40.9)}.items():
        for seed, bleu in enumerate(figures, 1):
            config = {"kind": "translation", "corpus": "a"}
            more = {"config": config, "metrics": {"sacrebleu": bleu}, "parameters": 100 + seed}
            made = make_record(recipe="mine", variant=variant, seed=seed, **more)
            made.write(made.path)
    return tmp_path


def write(project: Path, *claims: str) -> None:
    text = "".join(f"      - {{where: section 1, claim: It is so, {claim}}}\n" for claim in claims)
    paper = "costs: {mine: an hour}\npapers:\n  - name: P\n    title: A paper\n    claims:\n"
    (project / FILE).write_text(paper + text)


def judge(project: Path, *claims: str) -> list[tuple[str, str, str]]:
    from rskip.records import read_records

    write(project, *claims)
    ((_, judged),) = judge_claims(project, Results(all_recipes(project), read_records(project / "results")))
    return [(each.verdict, each.figure, each.why) for each in judged]


def checked(more: str, limits: str, model: str = "1xskip") -> str:
    value = f"file: docs/figures/a.json, of: gradient, where: {{model: {model}}}"
    return f'checks: [{{says: "it is {{:.2f}}", value: {{{value}, {more}}}, {limits}}}]'


def test_figures_are_taken_of_measurements_and_records_and_held_against_limits(project: Path) -> None:
    assert judge(
        project,
        checked("take: first", "over: {take: last}, above: 3.9, below: 4.1"),
        checked("take: first", "over: {take: last}, above: 4"),
        checked("take: median", "over: {where: {model: 2xskip}}, below: 1"),
        checked("take: trend", "above: -0.5"),
        checked("take: trend", "below: 0", model="2xskip"),
        checked("take: share_above, limit: 2", "above: 0.4"),
        'checks: [{says: "{:.0f}", value: {file: results/mine/plain/2.json, of: parameters}, above: 101}]',
    ) == [
        ("agrees", "it is 4.00", ""),
        ("disagrees", "it is 4.00", ""),
        ("agrees", "it is 0.50", ""),
        ("disagrees", "it is -1.00", ""),
        ("agrees", "it is -0.50", ""),
        ("agrees", "it is 0.50", ""),
        ("agrees", "102", ""),
    ]


def test_a_claim_of_several_seeds_must_hold_for_each(project: Path) -> None:
    first = project / "docs/figures/a.json"
    (project / "docs/figures/b.json").write_text(first.read_text().replace("4.0", "16.0"))
    value = "value: {of: gradient, take: max, where: {model: 1xskip}}, over: {take: min}"
    check = f'checks: [{{says: "x {{:.0f}}", {value}, below_that: {{where: {{model: 2xskip}}}}}}]'  # 8
    assert judge(
        project,
        f"seeds: [docs/figures/a.json], measures: largest over smallest, {check}",
        f"seeds: [docs/figures/a.json, docs/figures/b.json], measures: largest over smallest, {check}",
    ) == [
        ("agrees", "largest over smallest; seed 1: x 4", ""),
        ("disagrees", "largest over smallest; seed 1: x 4; seed 2: x 16", ""),
    ]


def test_a_table_agrees_or_disagrees_only_where_its_seeds_show_it(project: Path, make_record: MakeRecord) -> None:
    pytest.importorskip("scipy")

    twice = "+4.00 sacreBLEU [+1.62, +6.38], p = 0.010, n = 3"

    def compared(variants: str, are: str) -> str:
        return f"compared: [{{table: mine, variants: [{variants}], are: {are}}}]"

    assert judge(
        project,
        compared("mine/twice", "higher"),
        compared("mine/twice", "lower"),
        compared("mine/thrice", "higher"),
        compared("mine/twice, mine/thrice", "lower"),
    ) == [
        ("agrees", f"mine/twice: {twice}", ""),
        ("disagrees", f"mine/twice: {twice}", ""),
        ("untested", "", "no records; a run of `mine`: an hour"),
        ("disagrees", f"mine/twice: {twice}", ""),
    ]
    for seed, bleu in enumerate((36.0, 39.5, 38.0), 1):
        config = {"kind": "translation", "corpus": "a"}
        record = make_record(recipe="mine", variant="thrice", seed=seed, config=config, metrics={"sacrebleu": bleu})
        record.write(record.path)
    ((verdict, figure, why),) = judge(project, compared("mine/thrice", "lower"))
    assert (verdict, why) == ("not detected", "")
    assert figure == "mine/thrice: -0.17 sacreBLEU [-3.27, +2.94], p = 0.983, n = 3, MDE 4.15"
    known = checked("take: first", "above: 5")  # which is not so, and judges nothing
    ((verdict, figure, _),) = judge(project, f"{compared('mine/twice', 'higher')}, {known}")
    assert (verdict, figure) == (
        "agrees",
        "it is 4.00; mine/twice: +4.00 sacreBLEU [+0.90, +7.10], p = 0.018, n = 3",
    )


def test_tests_prove_or_refute_and_the_page_counts(project: Path) -> None:
    tests = "[tests/test_a.py::test_it]"
    write(project, f"tests: {tests}, note: so", f"refuted_by: {tests}", "untested: too dear, paper_says: three")
    page = claims_page(judge_claims(project, Results(all_recipes(project), [])))
    assert "A paper: 1 agrees (1 proved exactly), 1 disagrees (1 proved exactly), 1 is untested." in page
    assert page.endswith(
        "| section 1 | It is so | **agrees** | exactly. So (`pytest tests/test_a.py::test_it`) |\n"
        "| section 1 | the same | **disagrees** | exactly (`pytest tests/test_a.py::test_it`) |\n"
        "\n| where | claim: **untested** | what we know, or a test needs |\n| --- | --- | --- |\n"
        "| section 1 | It is so (three) | too dear |\n"
    )


def test_a_claim_without_a_limit_or_of_what_is_not_there_is_refused(project: Path) -> None:
    first = checked("take: first", "above: 1")
    for claim, error in (
        ("note: a", AssertionError),
        (checked("take: first", "over: {take: last}"), AssertionError),
        (checked("take: first", "judges: false"), AssertionError),
        (checked("take: only", "above: 1"), AssertionError),
        (checked("take: first", "above: 1", model="x"), AssertionError),
        ("tests: [tests/test_a.py::test_that]", AssertionError),
        (COMPARED % ("mine", "x"), StopIteration),
        (COMPARED % ("his", "x"), SettingError),
        (f"{first}, clame: a", SettingError),
    ):
        with pytest.raises(error):
            judge(project, claim)


def test_every_claim_of_the_project_has_a_command_or_says_why_there_is_none(root: Path) -> None:
    judged = [each for _, claims in judge_claims(root, Results(all_recipes(root), [])) for each in claims]
    assert len(judged) > 60
    claims = [each.claim for each in judged]
    without = [e.untested for e in claims if not (e.command or e.compared or e.tests or e.refuted_by)]
    assert without == [
        "we do not have the other systems, and the paper does not name the scorers",
        "we do not have GLIED",
    ]
