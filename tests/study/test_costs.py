"""Costs of connections: next to the lines of grids, in tables and figures, and errors for wrong lines."""

# ruff: noqa: F811  (fixtures of another file)
from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rskip.experiments.results import read_results
from study import streams
from study.costs import FILE, read_costs
from study.documents import outdated_texts
from study.figures import figures
from tests.experiments.test_grids import COMMAND, project, record  # noqa: F401  (fixtures)

COST = {
    "model": "translation", "parameters": 1000, "kept_megabytes": 20.0, "calls_forward": 100, "megabytes_forward": 1.4,
    "calls_backward": 300, "megabytes_backward": 2500.0,
}  # fmt: skip
MODEL = {"translation": {"description": "Transformer of 2 layers", "baseline": "1xskip+ln"}}


def write_costs(*lines: dict[str, Any]) -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text("".join(json.dumps({"date": "2026-02-03T04:05:06+00:00", **line}) + "\n" for line in lines))


def rendered(name: str, form: Any) -> str:
    results = read_results(Path())
    return read_costs(Path()).added(results.table(name), results.grids[name]).render(form)


def test_costs_counted_at_a_variants_own_depth_stand_there_and_only_there(project: Path) -> None:
    deep = {"translation_18x18": {"description": "Transformer of 36 layers", "baseline": "1xskip+ln"}}
    shallow = [{**COST, "connection": name, "alike": 0.25} for name in ("1xskip+ln", "2xskip+ln")]
    deeper = [{**row, "model": "translation_18x18", "alike": 0.75} for row in shallow]
    write_costs({"models": MODEL, "rows": shallow}, {"models": deep, "rows": deeper})
    for name, alike, layers in (("small", "0.25", 2), ("large", "0.75", 36)):
        lines = rendered(f"mine/{name}", "text").splitlines()
        assert [line.split() for line in lines[3:5]] == [[each, "1.00", "1.00", alike] for each in ("plain", "twice")]
        assert sum(line.endswith(f"in a Transformer of {layers} layers.") for line in lines) == 1


def test_lines_stand_by_their_best_cell_and_what_diverged_says_so(record: Callable[..., None]) -> None:
    record("plain", 1, 4.5, lr=2)
    record("plain", 1, 4.7, lr=1)
    record("plain", 2, 4.9, lr=1)
    record("twice", 1, 4.2, lr=2, bleu=33.0)
    record("twice", 2, 4.4, lr=2, bleu=34.0)
    record("twice", 1, None, lr=1)
    record("gates", 1, 4.0, lr=2)
    record("gates", 2, 6.1, lr=2)  # 1.1 above its lowest
    record("gates", 3, math.nan, lr=2)
    write_costs(
        {"models": MODEL, "rows": [{"connection": "1xskip+ln", **COST}, {"connection": "sas", **COST}]},
        {"models": MODEL, "rows": [{**COST, "connection": "sas", "kept_megabytes": 30.0, "update_ratio": 1.25}]},
        {"models": MODEL, "rows": [{**COST, "connection": "1xskip+ln", "alike": 0.762}]},
    )
    assert rendered("mine/small", "markdown") == (
        "| variant | lr2 | lr1 | sacreBLEU there | time | calls | memory | cosine |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| twice | **4.30 ± 0.14 (2)** | diverged | 33.50 ± 0.71 |  |  |  |  |\n"
        "| plain | **4.50 (1)** | 4.80 ± 0.14 (2) | 30.00 |  | 1.00 | 1.00 | 0.76 |\n"
        "| gates | **4.00 (1), 2 diverged** |  | 30.00 | 1.25 | 1.00 | 1.50 |  |\n\n"
        "Cells: validation loss, bits per token, mean ± sample standard deviation (seeds). Best row first; best "
        "value of each row in bold. Cells with one seed don't rank variants. Diverged: a loss, gradient or weight was "
        "not finite, or the loss ended more than 1 above its lowest; means and differences leave such seeds out.  \n"
        "sacreBLEU: `nrefs:1|tok:13a`.  \n"
        "Time per update, operator calls and memory kept for the backward pass are relative to `1xskip+ln`. Cosine: "
        "mean cosine similarity between two positions of a sentence after the untrained encoder. Measured in a "
        "Transformer of 2 layers.\n\n"
        f"Missing:\n\n    {COMMAND} small_gates_lr1 --seeds 1\n"
    )
    rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(rendered("mine/small", "csv")))}
    gates = rows["mine/small_gates_lr1"]
    assert (gates["seeds"], gates["command"]) == ("", f"{COMMAND} small_gates_lr1 --seeds 1")
    assert r"twice & \textbf{4.30 $\pm$ 0.14 (2)} & diverged & " in rendered("mine/small", "latex")


def test_a_grid_is_drawn_from_its_records(project: Path, record: Callable[..., None]) -> None:
    record("twice", 1, 4.2, lr=2)
    record("twice", 2, None, lr=2)
    write_costs({"models": MODEL, "rows": [{"connection": name, **COST} for name in ("1xskip+ln", "2xskip+ln")]})
    (project / "docs" / "figures").mkdir()
    listed = project / "study" / "figures.yaml"
    listed.write_text("mine: {grid: mine/small, quantities: [valid_loss, calls]}")
    made = figures(project, read_results(project), read_costs(project))
    lines = ["twice,lr2,1,valid_loss,4.2", "twice,lr2,2,valid_loss,", "twice,lr1,,valid_loss,", "twice,,,calls,1.0"]
    assert made[0].csv.splitlines()[1:] == lines


def test_grids_and_costs_stand_in_documents(project: Path, record: Callable[..., None]) -> None:
    (project / "docs" / "own.md").write_text(
        "".join(
            f"<!-- study: begin {name} -->\n<!-- study: end {name} -->\n"
            for name in ("mine/small", "connection_cost_translation")
        )
    )
    record("plain", 1, 4.5, lr=2)
    baseline = {**COST, "connection": "1xskip+ln", "calls_forward": 1300}
    of_another = {"date": "2026-03-04", "models": {"vision": MODEL["translation"]}, "rows": []}
    write_costs({"models": MODEL, "rows": [{"connection": "sas", **COST}, baseline]}, of_another)
    costs = read_costs(Path())
    text = outdated_texts(Path(), read_results(Path()), costs)[Path("docs/own.md")]
    assert "| plain | **4.50 (1)** |" in text
    assert "Missing:" not in text, "`rskip report` prints the commands"
    assert text.endswith(
        "| `1xskip+ln` | 1,600 | 2,501 | 1.00 |\n"
        "| `sas` | 400 | 2,501 | 1.00 |\n\n"
        "Memory kept for the backward pass is relative to `1xskip+ln`. Measured in a Transformer of 2 layers. Last "
        "measured 2026-02-03.\n\n"
        "<!-- study: end connection_cost_translation -->\n"
    )


def test_streams_are_shown_beside_those_of_other_libraries(tmp_path: Path) -> None:
    file, names = tmp_path / streams.FILE, ("rskip prenorm+rms", "rskip mhc+rms in PyTorch", "transformers Hy4")
    rows = [
        {"name": name, "features": size, "calls": 10 * size, "kept": 3, "sublayer_ms": 1.26, "stack_ms": number * size}
        for number, name in enumerate(names, start=2)
        for size in (1, 5)
    ]
    for row in rows[::2]:
        row["compiled_ms"] = 0.5
    line = {"date": "2026-02-03T04:05:06+00:00", "rounds": 7, "load": 2.2, "libraries": {"a": "1", "b": "2"}}
    file.parent.mkdir(parents=True)
    file.write_text('{"rows": []}\n' + json.dumps({**line, "rows": rows, "other": 1}) + "\n")
    shown = streams.side_by_side(tmp_path)
    assert "| rskip `mhc+rms` in PyTorch | 10 | 3.0 | 1.3 | 0.5 | 3 | 1.50 | 1.3 | 15 | 1.50 |" in shown
    assert "7 alternating passes with a 1 and b 2" in shown and "Measured 2026-02-03" in shown
