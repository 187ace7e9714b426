"""A published folder and its records as an entry, and the mistakes that are found on the way."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rskip.zoo.entry_of_record import entry_of_record
from rskip.zoo.papers import paper_of
from rskip.zoo.publish import publish, write_tables
from rskip.zoo.run_kinds import RUN_KINDS
from safetensors.numpy import save_file

from rskip.zoo.entry import OF_RUN, OF_WEIGHTS, Figure, ModelFile
from rskip.zoo.model_card import model_card
from rskip.zoo.registry import read_registry, write_registry

RUN = "cifar10_preact20_2rskip_ln"
NAME = "preact_resnet20_2rskip_ln.cifar10"
CONFIG = {
    "format": 1,
    "task": "image-classification",
    "model": {"depth": 20, "connection": "2rskip+ln", "num_classes": 10, "shortcut": "zero_pad", "block": "basic"},
    "dataset": "cifar10",
    "classes": ["cat", "dog"],
}


def make_run(
    root: Path, run: str = RUN, *, errors: tuple[float, ...] = (8.0, 9.0), config: Any = CONFIG
) -> list[dict[str, Any]]:
    """A run with a record a seed, of which seed 2 is published; returns the records."""
    folder = root / "checkpoints" / run
    folder.mkdir(parents=True)
    weights = folder / "model.safetensors"
    save_file({"weight": np.ones(10, dtype=np.float32), "batches": np.ones(1, dtype=np.int64)}, weights)
    (folder / "config.json").write_text(json.dumps(config))
    records: list[dict[str, Any]] = [
        {
            "recipe": "cifar10_preact20_2rskip_ln",
            "run": run,
            "kind": "vision",
            "seed": seed,
            "config": {"train": {"dataset": "cifar10"}},
            "overrides": {},
            "metrics": {"error": error, "accuracy": 100 - error, "test_loss": 0.3, "top5_error": 0.25 * seed},
            "signatures": {},
            "parameters": 271_000,
            "git": {"commit": f"{seed}" * 40, "dirty": False},
            "published": None,
        }
        for seed, error in enumerate(errors, start=1)
    ]
    records[1]["published"] = {
        "file": "model.safetensors",
        "bytes": weights.stat().st_size,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "error": records[1]["metrics"]["error"],
    }
    (folder / "record.json").write_text(json.dumps(records[1]))
    return records


def test_an_entry_has_the_figures_of_the_weights_and_of_all_seeds(tmp_path: Path) -> None:
    records = make_run(tmp_path, errors=(8.0, 9.0, 8.5))
    folder = tmp_path / "checkpoints" / RUN
    (folder / "README.md").write_text("the card")
    entry = entry_of_record(folder, records[::-1], url="https://example.org")
    common = {"dataset": "cifar10", "split": "test", "signature": None}
    seeds = (1, 2, 3)
    assert entry.figures == (
        Figure(**common, metric="error", value=9.0, spread=None, seeds=(2,), of=OF_WEIGHTS),
        Figure(**common, metric="error", value=8.5, spread=0.5, seeds=seeds, of=OF_RUN),
        Figure(**common, metric="accuracy", value=91.5, spread=0.5, seeds=seeds, of=OF_RUN),
        Figure(**common, metric="top5_error", value=0.5, spread=0.25, seeds=seeds, of=OF_RUN),
    )
    assert (entry.name, entry.task, entry.architecture) == (NAME, "image-classification", "preact_resnet20")
    assert (entry.folder, entry.url, entry.dtype) == (f"checkpoints/{RUN}", "https://example.org", "float32")
    assert entry.records == tuple(f"results/{RUN}/{seed}.json" for seed in seeds)
    assert (entry.commit, entry.uncommitted_changes) == ("2" * 40, False)
    assert (entry.recipe, entry.parameters) == ("recipes/cifar10_preact20_2rskip_ln.yaml", 271_000)
    assert "Krizhevsky" in entry.data_terms and entry.licence == "MIT"
    assert entry.paper.title.startswith("Rethinking Skip Connection") and entry.paper.part == "Eq. 4"
    assert list(entry.files) == ["model.safetensors", "config.json"]
    content = (folder / "config.json").read_bytes()
    assert entry.files["config.json"] == ModelFile(size=len(content), sha256=hashlib.sha256(content).hexdigest())


def test_one_seed_has_no_spread_and_a_projection_is_named(tmp_path: Path) -> None:
    model = {**CONFIG["model"], "shortcut": "projection"}  # type: ignore[dict-item]
    records = make_run(tmp_path, config={**CONFIG, "model": model})
    entry = entry_of_record(tmp_path / "checkpoints" / RUN, records[1:])
    assert {(figure.spread, figure.seeds) for figure in entry.figures} == {(None, (2,))}
    assert entry.name == "preact_resnet20_projection_2rskip_ln.cifar10"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.update(published=None), "tells of no published weights"),
        (lambda record: record["published"].update(sha256="0" * 64), "is not the file that"),
        (lambda record: record["published"].update(bytes=5), "is not the file that"),
        (lambda record: record["published"].update(file="model.pt"), "expected the weights in model.safetensors"),
        (lambda record: record["published"].update(error=9.06), "has error 9.06, the run 9.00: expected at most 0.05"),
        (lambda record: record.update(kind="captioning"), "is a run of kind captioning: expected translation"),
        (lambda record: record.update(config={"train": {"dataset": "cifar100"}}), "says cifar10, the record of"),
    ],
)
def test_a_record_that_does_not_fit_is_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    record = make_run(tmp_path)[1]
    change(record)
    folder = tmp_path / "checkpoints" / RUN
    (folder / "record.json").write_text(json.dumps(record))
    with pytest.raises(ValueError) as caught:
        entry_of_record(folder, [record])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_records_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    records = make_run(tmp_path)
    folder = tmp_path / "checkpoints" / RUN
    other = {**records[0], "config": {"train": {"dataset": "cifar10", "lr": 1}}}
    with pytest.raises(ValueError, match=f"results/{RUN}/1.json and results/{RUN}/2.json differ in config: remove"):
        entry_of_record(folder, [other, records[1]])
    with pytest.raises(ValueError, match=f"none of the records in results/{RUN}: publish .*`rskip zoo publish {RUN}`"):
        entry_of_record(folder, records[:1])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("record.json", "{", "record.json: not a JSON file"),
        ("record.json", "[]", "record.json is none of the records in results/"),
        ("config.json", "<html>", "config.json doesn't describe a model"),
        ("config.json", '{"dataset": "cifar10"}', "config.json doesn't describe a model (KeyError('model'))"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, file: str, content: str, message: str) -> None:
    records = make_run(tmp_path)
    folder = tmp_path / "checkpoints" / RUN
    (folder / file).write_text(content)
    with pytest.raises(ValueError) as caught:
        entry_of_record(folder, records)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_weights_have_one_number_format(tmp_path: Path) -> None:
    records = make_run(tmp_path)
    folder = tmp_path / "checkpoints" / RUN
    weights = folder / "model.safetensors"
    save_file({"a": np.ones(3, dtype=np.float32), "b": np.ones(3, dtype=np.float16)}, weights)
    told = {"bytes": weights.stat().st_size, "sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
    records[1]["published"].update(told)
    (folder / "record.json").write_text(json.dumps(records[1]))
    with pytest.raises(ValueError, match="model.safetensors holds F16 and F32: expected one"):
        entry_of_record(folder, records)


def test_publishing_makes_replaces_and_keeps_the_address(tmp_path: Path) -> None:
    records = make_run(tmp_path)
    first = publish(RUN, records[1:], root=tmp_path, url="https://example.org")
    assert read_registry(tmp_path / "checkpoints.json") == {NAME: first}
    second = publish(RUN, records, root=tmp_path)
    assert read_registry(tmp_path / "checkpoints.json") == {NAME: second}
    assert second.url == "https://example.org" and second.figures[1].value == 8.5
    card = tmp_path / "checkpoints" / RUN / "README.md"
    assert card.read_text(encoding="utf-8") == model_card(second)


def test_a_renamed_model_keeps_its_address_and_its_name_until_it_is_renamed_again(tmp_path: Path) -> None:
    records = make_run(tmp_path)
    publish(RUN, records, root=tmp_path, url="https://example.org")
    for variant, name in (("again", f"{NAME}.again"), (None, f"{NAME}.again"), ("once_more", f"{NAME}.once_more")):
        entry = publish(RUN, records, root=tmp_path, variant=variant)
        assert read_registry(tmp_path / "checkpoints.json") == {name: entry}
        assert (entry.name, entry.url) == (name, "https://example.org")


def test_a_run_that_changes_its_recipe_needs_a_variant_once(tmp_path: Path) -> None:
    records = [{**record, "overrides": {"train.lr": 0.2}} for record in make_run(tmp_path)]
    (tmp_path / "checkpoints" / RUN / "record.json").write_text(json.dumps(records[1]))
    with pytest.raises(ValueError, match=r"changes its recipe \(train.lr=0.2\): give --variant WORD"):
        publish(RUN, records, root=tmp_path)
    assert not (tmp_path / "checkpoints.json").exists()
    publish(RUN, records, root=tmp_path, variant="fast")
    assert publish(RUN, records, root=tmp_path).name == f"{NAME}.fast"


def test_a_run_of_other_sizes_than_its_architectures_needs_a_variant(tmp_path: Path) -> None:
    train = {"dataset": "cifar10", "encoder-layers": 6, "dropout": 0.1}
    records = [{**record, "config": {"train": train}} for record in make_run(tmp_path)]
    (tmp_path / "checkpoints" / RUN / "record.json").write_text(json.dumps(records[1]))
    with pytest.raises(ValueError, match=r"changes its architecture \(encoder-layers=6\): give --variant WORD"):
        publish(RUN, records, root=tmp_path)
    assert publish(RUN, records, root=tmp_path, variant="deep").name == f"{NAME}.deep"


@pytest.mark.parametrize(
    ("depth", "block", "architecture"),
    [
        (20, "bottleneck", "preact_resnet20_bottleneck"),
        (164, "bottleneck", "preact_resnet164"),
        (164, "basic", "preact_resnet164_basic"),
    ],
)
def test_a_depth_with_two_kinds_of_blocks_has_two_names(
    tmp_path: Path, depth: int, block: str, architecture: str
) -> None:
    model = {**CONFIG["model"], "depth": depth, "block": block}  # type: ignore[dict-item]
    records = make_run(tmp_path, config={**CONFIG, "model": model})
    entry = entry_of_record(tmp_path / "checkpoints" / RUN, records)
    assert (entry.architecture, entry.name) == (architecture, f"{architecture}_2rskip_ln.cifar10")


def test_a_transformer_of_two_connections_has_no_name(tmp_path: Path) -> None:
    record = {"config": {"corpus": "multi30k-en-de", "evaluate": {"split": "test"}}}
    model: dict[str, Any] = {"connection": "2rskip+ln", "encoder_connection": None, "decoder_connection": "2rskip+ln"}

    def described() -> Any:
        metadata = {"config": json.dumps({"arch": "transformer_rskip_ln_tiny", "model": model})}
        save_file({"a": np.ones(1, dtype=np.float16)}, tmp_path / "model.safetensors", metadata=metadata)
        return RUN_KINDS["translation"].describe(tmp_path, record)

    assert (described().architecture, described().connection) == ("transformer_tiny", "2rskip+ln")
    model["encoder_connection"] = "sas"
    with pytest.raises(ValueError, match=r"its encoder has the connection sas, the rest 2rskip\+ln, and a"):
        described()


def test_two_runs_that_are_published_at_once_are_both_in_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {RUN: make_run(tmp_path), f"{RUN}_fast": make_run(tmp_path, f"{RUN}_fast")}

    def slow(path: Path) -> Any:
        entries = read_registry(path)
        time.sleep(0.05)
        return entries

    publish(RUN, runs[RUN], root=tmp_path)
    monkeypatch.setattr("rskip.zoo.publish.read_registry", slow)
    with ThreadPoolExecutor() as pool:
        found = [
            pool.submit(publish, run, records, root=tmp_path, variant=variant)
            for (run, records), variant in zip(runs.items(), ("slow", "fast"), strict=True)
        ]
        names = [each.result().name for each in found]
    assert list(read_registry(tmp_path / "checkpoints.json")) == sorted(names) == [f"{NAME}.fast", f"{NAME}.slow"]
    assert not list(tmp_path.glob(".*"))


def test_runs_of_one_name_need_a_variant(tmp_path: Path) -> None:
    publish(RUN, make_run(tmp_path), root=tmp_path)
    records = make_run(tmp_path, f"{RUN}_fast")
    before = (tmp_path / "checkpoints.json").read_bytes()
    with pytest.raises(ValueError, match=f"{NAME} is the model of checkpoints/{RUN}: give --variant WORD"):
        publish(f"{RUN}_fast", records, root=tmp_path)
    assert (tmp_path / "checkpoints.json").read_bytes() == before
    assert not (tmp_path / "checkpoints" / f"{RUN}_fast" / "README.md").exists()
    publish(f"{RUN}_fast", records, root=tmp_path, variant="fast")
    assert list(read_registry(tmp_path / "checkpoints.json")) == [NAME, f"{NAME}.fast"]


def test_models_that_take_too_much_are_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = make_run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("rskip.zoo.publish.MAX_BYTES", 200)
        with pytest.raises(ValueError, match=f"{NAME} takes 0.0 MB: expected at most 0 MB"):
            publish(RUN, records, root=tmp_path)
    assert not (tmp_path / "checkpoints.json").exists()
    entry = publish(RUN, records, root=tmp_path)
    monkeypatch.setattr("rskip.zoo.publish.MAX_BYTES_IN_ALL", entry.size)
    with pytest.raises(ValueError, match="the models in checkpoints/ take 0.0 MB together"):
        publish(f"{RUN}_fast", make_run(tmp_path, f"{RUN}_fast"), root=tmp_path, variant="fast")
    assert list(read_registry(tmp_path / "checkpoints.json")) == [NAME]
    write_registry(tmp_path / "checkpoints.json", {"a.b": dataclasses.replace(entry, name="a.b", folder=None)})
    publish(RUN, records, root=tmp_path)  # what is only served takes no room in the repository


def test_a_run_that_was_not_published_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="publish the run first, `rskip run RECIPE --publish`"):
        publish("nothing", [], root=tmp_path)


def test_tables_between_markers_follow_the_registry(tmp_path: Path) -> None:
    publish(RUN, make_run(tmp_path), root=tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- rskip zoo: begin models -->\nold\n<!-- rskip zoo: end models -->\nb\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("no table")
    assert write_tables(tmp_path) == [readme]
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("a\n<!-- rskip zoo: begin models -->\n\n| model |") and text.endswith("end models -->\nb\n")
    assert f"| `{NAME}` | `2rskip+ln` | error, % 8.50 ± 0.71 on test of cifar10 | 2 seeds (1, 2) |" in text
    assert "old" not in text
    assert write_tables(tmp_path) == []
    readme.write_text("<!-- rskip zoo: begin models -->\n")
    with pytest.raises(ValueError, match="README.md: expected one line <!-- rskip zoo: begin models --> and, below it"):
        write_tables(tmp_path)


@pytest.mark.parametrize(
    ("connection", "task", "title", "part"),
    [
        ("1xskip+ln", "translation", "Attention Is All You Need", "section 3.1"),
        ("1xskip", "image-classification", "Identity Mappings in Deep Residual Networks", None),
        ("1xskip+ln", "image-classification", "Rethinking Skip Connection with Layer", "Eq. 2 and 3"),
        ("2xskip+ln", "translation", "Rethinking Skip Connection with Layer", "Eq. 2 and 3"),
        ("3rskip+ln", "translation", "Rethinking Skip Connection with Layer", "Eq. 4"),
        ("wskip+ln", "translation", "Rethinking Skip Connection with Layer", "section 4.3"),
        ("sas:gate=single", "translation", "Self-Adaptive Scaling Approach for Learnable Residual Structure", "Eq. 4"),
        ("highway", "image-classification", "Highway Networks", None),
        ("prenorm+ln", "translation", "On Layer Normalization in the Transformer", None),
    ],
)
def test_the_paper_is_the_connections(connection: str, task: str, title: str, part: str | None) -> None:
    paper = paper_of(connection, task=task)
    assert paper.title.startswith(title) and paper.part == part
