"""The committed figures, drawn again: no text is cut off or lies on other text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rskip.comparison.chart import as_svg
from rskip.comparison.plan import read_plan
from rskip.comparison.result import Comparison
from rskip.comparison.running import Runs
from rskip.experiments.results import read_results
from study.costs import read_costs
from study.figures import figures
from study.grid_drawing import draw_chart

SLACK = 0.5  # points; boxes have a margin of their own


class Texts:
    """The boxes of the texts that matplotlib draws."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from matplotlib.text import Text

        self.boxes: dict[int, tuple[str, Any]] = {}
        plain = Text.draw

        def noting(text: Text, renderer: Any) -> None:
            self.canvas = renderer.width, renderer.height
            if text.get_visible() and text.get_text().strip():
                self.boxes[id(text)] = text.get_text(), Text.get_window_extent(text, renderer)
            plain(text, renderer)

        monkeypatch.setattr(Text, "draw", noting)

    def problems(self) -> list[str]:
        """What is wrong with the texts since the last call."""
        found, boxes = [], list(self.boxes.values())
        self.boxes.clear()
        width, height = self.canvas
        for at, (text, box) in enumerate(boxes):
            if min(box.x0, box.y0) < -SLACK or box.x1 > width + SLACK or box.y1 > height + SLACK:
                found.append(f"{text!r} is cut off")
            for other, there in boxes[:at]:
                common = min(box.x1, there.x1) - max(box.x0, there.x0), min(box.y1, there.y1) - max(box.y0, there.y0)
                if min(common) > SLACK:
                    found.append(f"{text!r} lies on {other!r}")
        return found


def test_no_text_of_a_committed_figure_is_cut_off_or_lies_on_other_text(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    texts, found = Texts(monkeypatch), {}
    for made in figures(root, read_results(root), read_costs(root)):
        draw_chart(made.chart, tmp_path / "figure.svg", title=made.title)
        found[made.stem.name] = texts.problems()
    for output in sorted((root / "study" / "results" / "compare").iterdir()):
        as_svg(Comparison(Runs(plan=read_plan(output), output=output)).figure())
        found[output.name] = texts.problems()
    assert len(found) > 20
    assert {name: problems for name, problems in found.items() if problems} == {}
