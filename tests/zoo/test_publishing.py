"""A published folder and the records of its run as a model of checkpoints.json, and the mistakes found on the way."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

from rskip.formulas import registry
from rskip.records import Record
from rskip.settings.errors import SettingError
from rskip.tasks import ModelDescription, find_task
from rskip.zoo.model_card import model_card
from rskip.zoo.publishing import (
    choose_name,
    files_of,
    plan_entry,
    register,
    renewed,
)
from rskip.zoo.registry import OF_RUN, OF_WEIGHTS, ModelEntry, ModelScore, read_registry
from study.__main__ import outdated_models

RUN = "cifar10_preact20/2rskip_ln"
NAME = "preact_resnet20_2rskip_ln.cifar10"
CONFIG: dict[str, Any] = {
    "format": 1,
    "task": "vision",
    "model": {"depth": 20, "connection": "2rskip+ln", "num_classes": 10, "shortcut": "zero_pad", "block": "basic"},
    "dataset": "cifar10",
    "classes": ["cat", "dog"],
}
REGISTRY = Path("checkpoints.json")
Records = list[Record]
replace = msgspec.structs.replace


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_run(run: str = RUN, *, errors: tuple[float, ...] = (8.0, 9.0), model: Any = None, **changes: Any) -> Records:
    """Writes a run's published folder; returns its records, one per seed, all with `changes`."""
    folder = Path("checkpoints", run)
    folder.mkdir(parents=True)
    save_file({"w": np.ones(9, np.float32), "batches": np.ones(1, np.int64)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model": {**CONFIG["model"], **(model or {})}}))
    common: dict[str, Any] = {
        **dict.fromkeys(("overrides", "signatures", "data", "packages"), {}),
        **{"recipe": run.partition("/")[0], "variant": run.partition("/")[2], "kind": "vision", "curve": []},
        **{"config": {"train": {"dataset": "cifar10"}}, "training": {"seconds": 1.0, "pieces": 1}},
        **{"parameters": 271_000, "machine": {"cpu": "Zuse Z4", "threads": 1}, "date": "2026-01-01"},
    }
    made = []
    for seed, error in enumerate(errors, start=1):
        metrics = {"error": error, "accuracy": 100 - error, "test_loss": 0.3, "top5_error": 0.25 * seed}
        own = {"seed": seed, "metrics": metrics, "checkpoint_sha256": f"{seed}" * 64}
        own |= {"git": {"commit": f"{seed}" * 40, "dirty": False}, "path": Path("results", run, f"{seed}.json")}
        made.append(Record(**{**common, **own, **changes}))
    return made


def plan(records: Sequence[Record], *, seed: int = 2, score: float = 9.0, **named: Any) -> ModelEntry:
    """The entry of a run whose published weights are those of a seed."""
    (record,) = (record for record in records if record.seed == seed)
    return plan_entry(Path("checkpoints", record.run), record, records, score=score, **named)


def publish(records: Sequence[Record], **named: Any) -> ModelEntry:
    """Makes that a model of checkpoints.json."""
    entry = plan(records, **named)
    register(entry)
    return entry


def test_an_entry_has_the_figures_of_the_weights_and_of_all_seeds() -> None:
    records = make_run(errors=(8.0, 9.0, 8.5))
    Path("checkpoints", RUN, "README.md").write_text("the card")
    entry = plan(records[::-1], url="https://example.org")
    common: dict[str, Any] = {"dataset": "cifar10", "split": "test", "signature": None}
    seeds = (1, 2, 3)
    assert entry.figures == (
        ModelScore(**common, metric="error", value=9.0, spread=None, seeds=(2,), of=OF_WEIGHTS),
        ModelScore(**common, metric="error", value=8.5, spread=0.5, seeds=seeds, of=OF_RUN),
        ModelScore(**common, metric="accuracy", value=91.5, spread=0.5, seeds=seeds, of=OF_RUN),
        ModelScore(**common, metric="top5_error", value=0.5, spread=0.25, seeds=seeds, of=OF_RUN),
    )
    assert (entry.name, entry.task, entry.architecture) == (NAME, "vision", "preact_resnet20")
    assert (entry.folder, entry.url, entry.dtype) == (f"checkpoints/{RUN}", "https://example.org", "float32")
    assert (entry.seed, entry.checkpoint_sha256, entry.overrides) == (2, "2" * 64, {})
    assert (entry.commit, entry.uncommitted_changes) == ("2" * 40, False)
    assert (entry.recipe, entry.parameters) == (RUN, 271_000)
    assert "Krizhevsky" in entry.data_terms and entry.licence == "MIT"
    assert entry.paper.title.startswith("Rethinking Skip Connection") and entry.paper.part == "Eq. 4"
    assert list(entry.files) == ["model.safetensors", "config.json"]
    assert entry.files == files_of(Path("checkpoints", RUN))


def test_what_does_not_belong_together_is_one_line() -> None:
    records = make_run()
    published = records[1]

    def refused(message: str, records: Sequence[Record] = records, **named: Any) -> None:
        with pytest.raises(ValueError) as caught:
            plan(records, **named)
        assert message in str(caught.value) and "\n" not in str(caught.value)

    refused("has error 8.94 when read back, the run had 9.00", score=8.94)
    refused("has error 9.06 when read back, the run had 9.00: expected a difference of at most 0.05", score=9.06)
    refused(f"results/{RUN}/2.json: kind is 'lines': expected", [replace(published, kind="lines")])
    other = replace(records[0], config={"train": {"dataset": "cifar10", "lr": 1}})
    refused(f"{RUN}/1.json and results/{RUN}/2.json have different settings (train): remove", [other, published])
    signed = replace(records[0], signatures={"error": "v2"})
    refused(f"results/{RUN}/1.json and results/{RUN}/2.json were scored differently", [signed, published])


def test_an_entry_is_made_anew_of_further_records_and_keeps_address_variant_and_score() -> None:
    records = make_run()
    entry = publish(records[1:], url="https://example.org", score=9.01)
    assert read_registry(REGISTRY) == {NAME: entry} and entry.figures[1].value == 9.0
    assert outdated_models(records[1:]) == []
    for named, name in (({}, NAME), ({"variant": "again"}, f"{NAME}.again"), ({}, f"{NAME}.again")):
        entry = renewed(entry, records, **named)
        register(entry)
        assert read_registry(REGISTRY) == {name: entry}
        found = [figure.value for figure in entry.figures[:2]]
        assert (entry.name, entry.url, found) == (name, "https://example.org", [9.01, 8.5])
        assert Path("checkpoints", RUN, "README.md").read_text(encoding="utf-8") == model_card(entry)
    assert outdated_models(records) == []
    more = [*records, replace(records[0], seed=3, path=Path("results", RUN, "3.json"))]
    (found,) = outdated_models(more)
    assert found.figures[1].seeds == (1, 2, 3) and found.files == entry.files


def test_a_run_that_changes_recipe_or_architecture_needs_a_variant_once() -> None:
    vision, translation = find_task("vision"), find_task("translation")
    lr: dict[str, Any] = {"overrides": {"train.lr": 0.2}, "config": {}}
    deep: dict[str, Any] = {"overrides": {}, "config": {"train": {"encoder-layers": 6, "dropout": 0.1}}}
    with pytest.raises(SettingError, match=r"^variant is missing: \S+ changes its recipe \(train.lr=0.2\): expected"):
        choose_name(RUN, vision, **lr)
    publish(make_run(), variant="fast", url="https://example.org")
    assert choose_name(RUN, vision, **lr) == {"variant": "fast", "url": "https://example.org"}
    with pytest.raises(SettingError, match=r"^variant is missing: x changes its architecture \(encoder-layers=6\): "):
        choose_name("x", translation, **deep)
    assert choose_name("x", translation, **deep, variant="deep") == {"url": None, "variant": "deep"}
    for wrong in ({"url": "example.org"}, {"variant": "De ep"}):
        with pytest.raises(SettingError, match=f"^{next(iter(wrong))} is '"):
            choose_name("x", translation, **deep, **wrong)


OWN = """
from rskip.connections import Connection, register_connection

@register_connection("published_skip", source="Me, My skip")
class PublishedSkip(Connection):
    def combine(self, x, f):
        return x + f
"""


def test_a_transformer_has_a_name_where_it_has_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_run(kind="translation", config={"corpus": "multi30k-en-de", "evaluate": {"split": "test"}})[0]

    def described(record: Record, arch: str, connection: str, **stacks: str | None) -> ModelDescription:
        config = {"task": "translation", "arch": arch, "model": {"connection": connection, **stacks}}
        Path("config.json").write_text(json.dumps(config))
        save_file({"a": np.ones(1, np.float16)}, "model.safetensors", metadata={"format": "rskip-2"})
        return find_task("translation").work().describe(Path(), record)

    stacks = {"encoder_connection": None, "decoder_connection": "2rskip+ln"}
    found = described(record, "transformer_rskip_ln_tiny", "2rskip+ln", **stacks)
    assert (found.architecture, found.connection) == ("transformer_tiny", "2rskip+ln")
    assert (found.dataset, found.languages, found.split) == ("multi30k", ("en", "de"), "test_2016_flickr")
    assert (found.paper.part, described(record, "transformer_sas", "sas").architecture) == ("Eq. 4", "transformer_base")
    assert described(record, "transformer_xskip_ln", "1xskip+ln").paper.title == "Attention Is All You Need"
    Path("own_published").mkdir()
    Path("own_published", "__init__.py").write_text(OWN)
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    monkeypatch.setattr(sys, "path", [*sys.path])
    own = replace(record, config={**record.config, "train": {"user-dir": "own_published"}})
    assert described(own, "transformer_sas", "published_skip").paper.title == "Me, My skip"
    with pytest.raises(ValueError, match=r"its encoder has the connection sas, the rest 2rskip\+ln, but a"):
        described(record, "transformer_rskip_ln_tiny", "2rskip+ln", encoder_connection="sas")
