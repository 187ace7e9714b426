"""Summaries over seeds, tables in several text formats, and tables between two marker lines of a document."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import msgspec

from rskip.files.whole import atomic_file
from rskip.machine.terminal import columns

Format = Literal["text", "markdown", "csv", "latex"]
Place = tuple[int, int]  # row and column of a cell


class Summary(msgspec.Struct, frozen=True):
    """A score over seeds: its mean, and its sample standard deviation (n - 1), which is None for one seed."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


def summarise(values: Sequence[float]) -> Summary:
    """The summary of one value per seed."""
    return Summary(fmean(values), stdev(values) if len(values) > 1 else None)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table without a final line feed. Cells are Markdown, in which HTML tags are escaped."""
    lines = [headings, ["---"] * len(headings), *rows]
    escaped = ([markdown_text(cell).replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def markdown_text(text: str) -> str:
    """One line of Markdown for text that may contain `code`. HTML tags outside of code are escaped."""
    parts = re.split("(`+[^`]+`+)", " ".join(text.splitlines()))
    return "".join(part if part.startswith("`") else _TAG.sub("&lt;", part) for part in parts)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, for all text formats.

    :param words: number of left columns with text; the others have numbers.
    :param bold: cells in bold.
    :param remark: sentences above the table.
    :param notes: sentences below the table, about its content; `legend`: those that explain all tables of its kind.
    :param commands: commands that make the missing run records.
    :param numbers: rows of the CSV by heading, if they hold more than the cells.
    """

    name: str
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    bold: Collection[Place] = ()
    remark: str = ""
    notes: Sequence[str] = ()
    legend: Sequence[str] = ()
    commands: Sequence[str] = ()
    numbers: Sequence[Mapping[str, Any]] = ()

    def render(self, form: Format) -> str:
        """The table as text in a format, with a final line end; in Markdown without the title."""
        if form == "csv":
            text, numbers = io.StringIO(), [list(each.values()) for each in self.numbers]
            rows = [list(self.numbers[0]), *numbers] if numbers else [self.headings, *self.rows]
            csv.writer(text, lineterminator="\n").writerows(rows)
            return text.getvalue()
        below = [*self.notes, *self.legend]
        if form == "latex":
            head = f"{self.title}: made by `rskip report {self.name} --format latex`; \\usepackage{{booktabs}}"
            remarks = [self.remark] if self.remark else []
            comments = [*remarks, *below, *(f"missing: {command}" for command in self.commands)]
            return "\n".join([_latex_comment(head), self._latex(), *map(_latex_comment, comments)]) + "\n"
        if form == "markdown":
            table = markdown_table(self.headings, self._marked("**{}**", self.rows))
            parts = [markdown_text(self.remark), table, "  \n".join(map(markdown_text, below))]
        else:
            table = columns([self.headings, *self.rows], left=range(self.words))
            parts = [self.title, self.remark, table, "\n".join(below)]
        if self.commands:
            parts += ["Missing:", "\n".join(f"    {command}" for command in self.commands)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _latex(self) -> str:
        lines = self._marked(r"\textbf{{{}}}", [[_latex_text(cell) for cell in row] for row in self.rows])
        head, *body = (" & ".join(line) + r" \\" for line in ([_latex_text(each) for each in self.headings], *lines))
        begin = rf"\begin{{tabular}}{{{'l' * self.words}{'r' * (len(self.headings) - self.words)}}}"
        return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])

    def _marked(self, mark: str, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        return [
            [mark.format(cell) if (at, place) in self.bold else cell for place, cell in enumerate(row)]
            for at, row in enumerate(rows)
        ]


def _latex_text(text: str) -> str:
    text = re.sub(r"[\\&%$#_{}~^]", lambda match: _LATEX.get(match[0], rf"\{match[0]}"), " ".join(text.splitlines()))
    return text.replace(" ± ", r" $\pm$ ").replace("<", r"$<$")


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _latex_comment(text: str) -> str:
    return f"% {' '.join(text.splitlines())}"


def fill_in(text: str, command: str, table: Callable[[str], str], *, source: str) -> str:
    """Regenerates every table of a command in a text. A text without markers stays unchanged.

    A table is between the lines `<!-- COMMAND: begin NAME -->` and `<!-- COMMAND: end NAME -->`.

    :param command: the command, such as `rskip report`.
    :param table: returns the table NAME, with a final line end.
    :param source: the name of the text in errors.
    :raises ValueError: a marker has another form or lacks its counterpart.
    """
    mark = re.escape(command)
    whole = re.compile(rf"^<!-- {mark}: begin (\S+) -->\n.*?^(?=<!-- {mark}: end \1 -->$)", re.MULTILINE | re.DOTALL)

    def fill(match: re.Match[str]) -> str:
        return f"<!-- {command}: begin {match[1]} -->\n\n{table(match[1]).rstrip(chr(10))}\n\n"

    filled, count = whole.subn(fill, text)
    if len(re.findall(rf"^\s*<!-- {mark}:", text, re.MULTILINE)) != 2 * count:
        raise ValueError(f"{source}: a marker of {command} lacks its counterpart, or has another form")
    return filled


def outdated_documents(root: Path, filled: Callable[[str, str], str]) -> dict[Path, str]:
    """The new texts of README.md and the documents in docs/ whose tables are outdated.

    :param filled: returns the text of a document with regenerated tables (`fill_in`), given its text and path.
    """
    texts = {}
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            if (new := filled(text, str(path))) != text:
                texts[path] = new
    return texts


def write_documents(texts: dict[Path, str]) -> list[Path]:
    """Writes each text atomically; returns the paths."""
    for path, text in texts.items():
        with atomic_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return list(texts)
