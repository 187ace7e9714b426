"""Tables in Markdown: their text, their place between markers, documents that are out of date."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.records.tables import (
    Table,
    fill_in,
    markdown_table,
    markdown_text,
    outdated_documents,
    summarise,
    write_documents,
)


def test_a_summary_is_mean_and_sample_deviation() -> None:
    assert str(summarise([37.0, 38.0, 39.0])) == "38.00 ± 1.00"
    one = summarise([37.0])
    assert (str(one), one.std) == ("37.00", None)


def test_a_bar_in_a_cell_is_no_edge() -> None:
    assert markdown_table(["a", "b"], [["1|2", ""]]) == "| a | b |\n| --- | --- |\n| 1\\|2 |  |"


def fill(text: str) -> str:
    return fill_in(text, "rskip x", lambda name: f"table of {name}\n", source="README.md")


def test_tables_stand_between_their_markers_and_the_rest_of_the_text_stays() -> None:
    filled = fill("before\n<!-- rskip x: begin a_* -->\nold\n<!-- rskip x: end a_* -->\nafter\n")
    assert filled == ("before\n<!-- rskip x: begin a_* -->\n\ntable of a_*\n\n<!-- rskip x: end a_* -->\nafter\n")
    assert fill(filled) == filled
    for text in ("no markers,\n no last line end", "<!-- rskip y: begin a -->\n"):
        assert fill(text) == text


def test_wrong_markers_are_refused() -> None:
    for text in (
        "<!-- rskip x: begin a -->\n",
        "<!-- rskip x: begin a -->\n<!-- rskip x: end b -->\n",
        "<!-- rskip x: bgin a -->\n",
    ):
        with pytest.raises(ValueError, match=r"^README\.md: a marker of rskip x"):
            fill(text)


def test_outdated_documents_are_those_of_the_readme_and_of_docs(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deeper").mkdir(parents=True)
    texts = {"README.md": "old", "docs/deeper/b.md": "old", "docs/a.md": "new", "other.md": "old", "docs/c.txt": "old"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    outdated = outdated_documents(tmp_path, lambda text, source: "new")
    assert outdated == {tmp_path / "README.md": "new", tmp_path / "docs/deeper/b.md": "new"}
    assert write_documents(outdated) == list(outdated)
    assert outdated_documents(tmp_path, lambda text, source: "new") == {}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("p < 0.001 in `a<b>`, 2 > 1", "p < 0.001 in `a<b>`, 2 > 1"),
        ("<script>", "&lt;script>"),
        ("a\n</td>", "a &lt;/td>"),
        ("``<b>`` <b>", "``<b>`` &lt;b>"),
    ],
)
def test_markdown_makes_no_html_of_text(text: str, shown: str) -> None:
    assert markdown_text(text) == shown
    assert markdown_table(["|"], [[text]]) == f"| \\| |\n| --- |\n| {shown} |"


def test_latex_makes_no_commands_of_text() -> None:
    table = Table(
        name="a",
        title="T\n\\input{x}",
        headings=["\\a{b}"],
        rows=[["~^ 1_2\n&"]],
        notes=["n\n\\b"],
        commands=["c\n\\d"],
    )
    assert table.render("latex").splitlines() == [
        "% T \\input{x}: made by `rskip report a --format latex`; \\usepackage{booktabs}",
        "\\begin{tabular}{l}",
        "\\toprule",
        "\\textbackslash{}a\\{b\\} \\\\",
        "\\midrule",
        "\\textasciitilde{}\\textasciicircum{} 1\\_2 \\& \\\\",
        "\\bottomrule",
        "\\end{tabular}",
        "% n \\b",
        "% missing: c \\d",
    ]
