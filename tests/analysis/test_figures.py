"""The rows that figures draw from hand-made measurements, and one plot of every kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.analysis.figures import View, chart, draw
from rskip.analysis.measurement import Measurement, joined, learning_curves
from rskip.records import Record
from rskip.settings.errors import SettingError

PLACE = {"depth": 1, "block": 1, "stage": "encoder", "name": "encoder.layers.0.ffn", "sublayer": "ffn"}
HISTOGRAM = {f"h{number:02}": 0.25 if number < 4 else 0.0 for number in range(20)}


def measured(analysis: str, *rows: dict) -> Measurement:
    return Measurement(analysis=analysis, conditions={}, rows=rows)


def traced(model: str, seed: int, update: int, beta: float | None) -> dict:
    place = {key: value for key, value in PLACE.items() if key != "depth"}
    values = {"x_rms": 1.0, "f_rms": 2.0, "y_rms": 3.0, "gradient": 0.1}
    values |= {"alpha": None, "beta": beta, "gamma": None, "loss": 5.0}
    return {"model": model, "seed": seed, "update": update, **place, **values}


SIGNALS = measured(
    "signals",
    {"model": "sas", **PLACE, "x_rms": 1.0, "f_rms": 0.5, "y_rms": 40.0},
    {"model": "1xskip+ln", **PLACE, "x_rms": 1.5, "f_rms": None, "y_rms": 1.0},
)
GRADIENTS = measured(
    "gradients",
    *(
        {"model": "1xskip", "depth": depth, "block": block, "stage": "layer2", "sublayer": "", "gradient": 0.1}
        for depth in (20, 56) for block in (4, 5)
    ),
)  # fmt: skip
RATIOS = measured(
    "ratios", {"model": "2rskip+ln", **PLACE, "definition": "norm", "median": 2.8, "lower": 2.0, "upper": 4.0}
)
GATES = measured("gates", {"model": "sas", **PLACE, "gate": "beta", "mean": 0.1, **HISTOGRAM})
TRACE = measured(
    "trace", *(traced("sas", seed, update, update / seed) for seed in (1, 2) for update in (25, 50)),
    traced("sas", 1, 75, 9.0), traced("1xskip+ln", 1, 25, None),
)  # fmt: skip

DEPTH = measured(
    "depth",
    *(
        {"model": "attnres", **PLACE, "block": block, "over": over, "index": index, "weight": 1 - 1.5 * index}
        for block in (1, 2) for over in ("parts", "sources") for index in range(block)
    ),
)  # fmt: skip

def csv(measurement: Measurement, **view: object) -> list[str]:
    return chart(measurement, View(**view)).to_csv().splitlines()


def test_values_by_block():
    assert csv(SIGNALS, quantities=("y_rms", "f_rms"), labels={"sas": "SAS"}) == [
        "model,depth,block,stage,sublayer,quantity,value",
        "SAS,1,1,encoder,ffn,y_rms,40.0",
        "1xskip+ln,1,1,encoder,ffn,y_rms,1.0",
        "SAS,1,1,encoder,ffn,f_rms,0.5",  # without a value there is no row
    ]
    assert csv(SIGNALS, quantities=("x_rms",), models=("1xskip+ln",))[1:] == ["1xskip+ln,1,1,encoder,ffn,x_rms,1.5"]
    assert csv(GRADIENTS, depths=(56,), blocks=(5,))[1:] == ["1xskip,56,5,layer2,,gradient,0.1"]
    assert csv(RATIOS) == [
        "model,depth,block,stage,sublayer,quantity,value,lower,upper",
        "2rskip+ln,1,1,encoder,ffn,norm,2.8,2.0,4.0",
    ]
    assert csv(GATES)[1:] == ["sas,1,1,encoder,ffn,beta,0.1"]
    assert chart(GATES).line == chart(SIGNALS, View(models=("sas",))).line == "quantity", "in one panel"
    assert chart(SIGNALS).line == chart(RATIOS).line == "model"


def test_the_sources_of_a_blocks_input():
    assert csv(DEPTH) == [
        "model,depth,block,stage,sublayer,quantity,source,value",
        "attnres,1,1,encoder,ffn,weight,0,1.0",
        "attnres,1,2,encoder,ffn,weight,0,1.0",
        "attnres,1,2,encoder,ffn,weight,1,-0.5",
    ]


def test_histograms_are_a_row_a_bin():
    lines = csv(GATES, kind="histogram")
    assert lines[0] == "model,depth,block,stage,sublayer,quantity,bin,share" and len(lines) == 21
    assert lines[4:6] == ["sas,1,1,encoder,ffn,beta,0.15,0.25", "sas,1,1,encoder,ffn,beta,0.2,0.0"]


def test_traces_have_the_mean_of_seeds_where_all_seeds_go_on():
    assert csv(TRACE, kind="updates", quantities=("beta",)) == [
        "model,seed,update,block,stage,sublayer,quantity,value",
        "sas,1,25,1,encoder,ffn,beta,25.0",
        "sas,1,50,1,encoder,ffn,beta,50.0",
        "sas,2,25,1,encoder,ffn,beta,12.5",
        "sas,2,50,1,encoder,ffn,beta,25.0",
        "sas,1,75,1,encoder,ffn,beta,9.0",
        "sas,mean,25,1,encoder,ffn,beta,18.75",
        "sas,mean,50,1,encoder,ffn,beta,37.5",
    ]
    assert csv(TRACE, kind="updates", quantities=("loss",), models=("1xskip+ln",))[1:] == [
        "1xskip+ln,1,25,1,encoder,ffn,loss,5.0"
    ]
    assert len(csv(TRACE, quantities=("f_rms",))) == 1 + 6
    other = {**traced("1xskip+ln", 1, 25, None), "block": 2}
    of_last = csv(measured("trace", *TRACE.rows, other), kind="updates", models=("1xskip+ln",))
    assert {line.split(",")[3] for line in of_last[1:]} == {"2"}, "the stage's last block, where none is chosen"


def test_learning_curves_of_records(make_record: Callable[..., Record]):
    curve = [{"epoch": 1, "update": 10, "train_loss": 5.0, "valid_loss": 6.0, "lr": 0.1}, {"epoch": 2, "update": 20}]
    curves = learning_curves([make_record(curve=curve), make_record(recipe="v", curve=[{"epoch": 1, "iteration": 7}])])
    assert [list(row.values()) for row in curves.rows] == [
        ["numbers", 1, 1, 10, 5.0, 6.0, 0.1], ["numbers", 1, 2, 20, None, None, None], ["v", 1, 1, 7, None, None, None]
    ]  # fmt: skip
    assert csv(curves) == [
        "model,seed,epoch,quantity,value", "numbers,1,1,train_loss,5.0", "numbers,1,1,valid_loss,6.0"
    ]  # fmt: skip
    assert csv(curves, over="update", quantities=("lr",))[1:] == ["numbers,1,10,lr,0.1"]
    without_updates = learning_curves([make_record()])
    with pytest.raises(ValueError, match="nothing is left to draw"):
        csv(without_updates, over="update")
    with pytest.raises(ValueError, match="no record has a learning curve"):
        learning_curves([make_record(curve=[])])


def test_measurements_together_have_the_conditions_that_all_of_them_have():
    made = [
        Measurement(analysis="gradients", conditions={"examples": 7, "git": {"commit": commit}}, rows=GRADIENTS.rows)
        for commit in "ab"
    ]
    both = joined(made)
    assert (both.conditions, len(both.rows)) == ({"examples": 7}, 8)


def test_a_view_of_what_is_not_there_is_refused():
    for view, message in (
        ({"models": ("sass",)}, r"models is 'sass': expected sas, 1xskip\+ln \(did you mean 'sas'\?\)"),
        ({"quantities": ("gradient",)}, "quantities is 'gradient': expected x_rms, f_rms, y_rms"),
        ({"depths": (3,)}, "depths is 3: expected 1"),
        ({"models": ("1xskip+ln",), "quantities": ("f_rms",)}, "quantities is 'f_rms'"),
        ({"kind": "histogram"}, "kind is 'histogram': expected blocks for signals"),
    ):
        with pytest.raises(SettingError, match=message):
            chart(SIGNALS, View(**view))
    with pytest.raises(ValueError, match="nothing is left to draw"):
        chart(measured("gates"))


def test_every_kind_is_drawn(tmp_path: Path, make_record: Callable[..., Record]):
    pytest.importorskip("matplotlib")
    curves = learning_curves([make_record(seed=seed, curve=[{"epoch": 1, "train_loss": 2.0}]) for seed in (1, 2)])
    many = measured("gradients", *({**GRADIENTS.rows[0], "model": f"{n}xskip", "gradient": 10.0**n} for n in range(12)))
    six = measured("signals", *({**SIGNALS.rows[0], "model": f"{n}xskip"} for n in range(6)))
    runs = measured("trace", *({**row, "model": f"{row['model']}{n}"} for row in TRACE.rows[:3] for n in range(5)))
    for name, measurement, view in (
        ("signals.svg", SIGNALS, {"title": "RMS", "quantities": ("y_rms",)}), ("ratios.png", RATIOS, {}),
        ("many.svg", many, {}), ("gates.png", GATES, {"kind": "histogram"}), ("curves.svg", curves, {}),
        ("depth.svg", DEPTH, {}),
        ("heat_map.svg", runs, {"quantities": ("f_rms",)}), ("marked.svg", six, {"quantities": ("y_rms",)}),
        ("updates.png", TRACE, {"kind": "updates", "quantities": ("beta", "f_rms")}),
    ):  # fmt: skip
        draw(measurement, tmp_path / name, View(**view))
        content = (tmp_path / name).read_bytes()
        assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml") and len(content) < 150_000
    draw(curves, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "curves.svg").read_bytes()
    with pytest.raises(ValueError, match=r"ends in \.png or \.svg"):
        draw(GATES, tmp_path / "a.pdf")
