"""An evaluation as plain text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rskip.vision.evaluation.evaluate import ClassFigures, Evaluation

MOST_CLASSES = 20  # of which the whole matrix is shown; of more, the most frequent confusions alone
_MOST_CONFUSIONS = 20
_NOTHING = "-"


def text_form(evaluation: Evaluation) -> str:
    """The figures of all images, a table of the classes, and who was taken for whom."""
    parts = [_figures(evaluation), _classes(evaluation)]
    parts.append(_matrix(evaluation) if len(evaluation.classes) <= MOST_CLASSES else _confusions(evaluation))
    return "\n\n".join(part for part in parts if part) + "\n"


def _figures(evaluation: Evaluation) -> str:
    wrong = round(evaluation.error * evaluation.count / 100)
    return (
        f"error {evaluation.error:.2f} % ({wrong:,} of {evaluation.count:,} images), "
        f"not among the first five {evaluation.top5_error:.2f} %, loss {evaluation.loss:.4f}\n"
        f"{evaluation.images_per_second:,.0f} images/s ({evaluation.device}, {evaluation.precision}, "
        f"batches of {evaluation.batch_size:,}, median)"
    )


def _classes(evaluation: Evaluation) -> str:
    rows = [["class", "images", "error", "precision", "most often taken for"]]
    rows += [_class(figures) for figures in evaluation.per_class]
    return _table(rows, left=(0, 4))


def _class(figures: ClassFigures) -> list[str]:
    taken_for = f"{figures.taken_for} ({figures.taken:,})" if figures.taken_for else ""
    return [
        figures.name,
        f"{figures.count:,}",
        _percentage(figures.error),
        _percentage(figures.precision),
        taken_for,
    ]


def _matrix(evaluation: Evaluation) -> str:
    """True classes down, predicted ones across, by number."""
    rows = [["", "", *map(str, range(len(evaluation.classes)))]]
    for number, (name, row) in enumerate(zip(evaluation.classes, evaluation.confusion, strict=True)):
        rows.append([f"{number}", name, *(f"{images:,}" if images else "." for images in row)])
    return "images of each class (down) by what they were taken for (across):\n" + _table(rows, left=(1,))


def _confusions(evaluation: Evaluation) -> str:
    """The most frequent ones, most frequent first."""
    found = [
        (images, true, predicted)
        for true, row in enumerate(evaluation.confusion)
        for predicted, images in enumerate(row)
        if images and true != predicted
    ]
    found.sort(key=lambda each: (-each[0], each[1], each[2]))
    if not found:
        return ""
    names = evaluation.classes
    rows = [
        [names[true], "taken for", names[predicted], f"{images:,}"]
        for images, true, predicted in found[:_MOST_CONFUSIONS]
    ]
    return "the most frequent confusions:\n" + _table(rows, left=(0, 1, 2))


def _percentage(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f} %"


def _table(rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> str:
    """Columns of even width, flush right but for those of `left`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return "\n".join(lines)
