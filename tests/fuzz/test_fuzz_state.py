"""Damages every kind of state that rskip writes: reading it gives a value of its type or a one-line error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st
from safetensors.torch import save_file

from rskip.analysis.measurement import Measurement, read_measurement
from rskip.analysis.trace import read_trace
from rskip.captioning.captions import read_split
from rskip.captioning.config import CaptioningConfig
from rskip.captioning.features import Features, FeatureStore, FeatureWriter
from rskip.captioning.model import CaptioningTransformer
from rskip.captioning.model_file import CONFIG, load_captioning_model
from rskip.captioning.outputs import written_lines
from rskip.captioning.preparation import CaptionRecord
from rskip.checkpoint import Checkpoint, average_checkpoints, write_checkpoint
from rskip.checkpoint import read_checkpoint as read_fairseq
from rskip.checkpoint.fairseq_file import read_validation
from rskip.corpora.cleaning import CleaningReport, read_report
from rskip.corpora.corpus import CleaningOptions
from rskip.corpora.record import TranslationRecord, made_record, read_corpus_record
from rskip.files.folder_lock import Owner, read_owner
from rskip.files.resumable import Entry, ResumableFile
from rskip.files.state import state_line
from rskip.records import Record, read_record
from rskip.tasks.run import SESSION, RunFolder, once
from rskip.tasks.training_folder import TrainingFolder, read_checkpoint
from rskip.text import Dictionary
from rskip.vision import preact_resnet
from rskip.vision.model_file import load_model
from rskip.vision.training import CurvePoint, read_curve
from rskip.zoo.registry import read_registry
from tests.fuzz.contract import holds
from tests.fuzz.test_fuzz_files import damaged, damages, edited, edits, in_json
from tests.fuzz.values import given

ROOT = Path(__file__).parents[2]
OWN_IMAGES = {
    "name": "photos", "size": 32, "mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2], "counts": {"train": 9, "valid": 1},
    "sha256": {"train": "1", "valid": "2"},
}  # fmt: skip
POINT = CurvePoint(
    epoch=1, iteration=3, lr=0.1, train_loss=2.0, train_error=90.0, test_loss=None, test_error=None,
    images_per_second=50.0, seconds=1.0,
)  # fmt: skip
MACHINE = {"system": "Linux", "cpu": "x", "cores": 2, "threads": 2, "gpu": None}
PREPARED = {
    "format": 1, "corpus": "a-en-de", "options": {"shards": 1}, "inputs": {"a": {"sha256": "1"}}, "files": {"a": "1"},
    "sizes": {"a": 3}, "sentences": {"train": 9}, "dictionary_size": 8, "tools": {"a": "1"},
}  # fmt: skip
COUNTS = {"train": 2, "valid": 1}
CAPTIONED = {
    **{key: value for key, value in PREPARED.items() if key != "sentences"},
    "images": COUNTS, "captions": COUNTS, "upstream": COUNTS, "unused_pictures": 0, "examples": {},
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """A file's lines as JSON values, or what writes it with the files beside it, and the function that reads it.
    `form` writes a line."""

    name: str
    lines: list[Any] | Callable[[Path], Any]
    read: Callable[[Path], Any]
    kind: Any = object
    form: str = "{}\n"


def journal(path: Path) -> int:
    """The number of lines that an unfinished output with this journal has."""
    path.with_suffix("").write_text("a\nb\nc\n")
    with ResumableFile(path.with_suffix(""), {"beam": 4}, resume=True) as file:
        return file.lines


def copied(source: Path) -> Callable[[Path], Any]:
    return lambda path: shutil.copy(source, path)


def write_features(path: Path) -> None:
    with FeatureWriter(path.parent, {"backbone": "b", "dim": 3, "dtype": "float16"}) as writer:
        for name in "ab":
            writer.add(name, "0" * 64, Features(numpy.ones((6, 3), numpy.float32), (2, 3)))
        writer.finish()


def read_features(path: Path) -> list[Features]:
    store = FeatureStore(path.parent)
    return [store[name] for name in store.names]


def write_image_model(path: Path) -> None:
    resnet = preact_resnet(8, "2rskip+ln")
    tensors = {name: tensor.contiguous() for name, tensor in resnet.state_dict().items()}
    save_file(tensors, path.with_name("model.safetensors"))
    own = {"dataset": "images", "classes": list("abcdefghij"), "images": OWN_IMAGES}
    path.write_text(json.dumps({"format": 1, "task": "vision", "model": resnet.config, **own}))


def write_caption_model(path: Path) -> None:
    each = {"embed_dim": 8, "ffn_embed_dim": 8, "layers": 1, "attention_heads": 2}
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in each.items()}
    config = CaptioningConfig(vocabulary=6, feature_dim=4, **sizes)
    about = {"arch": "x", "task": "captioning", "source_lang": None, "target_lang": None, "model": config.to_dict()}
    weights = Checkpoint(model=CaptioningTransformer(config).state_dict(), config=about)
    write_checkpoint(path.with_name("model.safetensors"), weights)
    Dictionary(["a", "dog"]).save(path.with_name("dict.txt"))
    path.write_text(json.dumps(config.to_dict()))


WINDOWS = [Entry(window=at, lines=at + 1, bytes=2 * at + 2, sha256="0") for at in (0, 1)]
STATES = [
    State("part.journal", [{"beam": 4}, *WINDOWS], journal, int),
    State("captions.jsonl", [{"image": "a", "caption": "x"}, {"image": "b", "error": "y"}], written_lines, tuple),
    State("curve.jsonl", [POINT, POINT], read_curve, list),
    State("run.json", [{"settings": {"precision": "float32", "compile": False}}],
          lambda path: TrainingFolder(path.parent).begun_with(), dict),
    State("run.json", [{"train": {"lr": 0.1}}], lambda path: RunFolder(path.parent).bind({"train": {"lr": 0.1}})),
    State("train.log", [{"git": None, "packages": {"torch": "2"}, "machine": MACHINE}],
          lambda path: RunFolder(path.parent).sessions(), list, SESSION + "{}\n"),
    State("evaluation.json", [{"error": 9.0, "accuracy": 91.0, "top5_error": 1.0, "loss": 0.3, "per_class": [
        {"name": "cat", "count": 3, "error": 9.0, "taken_for": None, "taken": 0}]}], once, dict),
    State("owner.json", [asdict(Owner(attempt=3, host="h", process=1, since="2026"))],
          lambda path: read_owner(path.parent), (Owner, type(None))),
    State("corpus.json", [PREPARED], lambda path: made_record(path.parent, TranslationRecord), dict),
    State("corpus.json", [CAPTIONED], lambda path: made_record(path.parent, CaptionRecord), dict),
    State("corpus.json", [PREPARED], lambda path: read_corpus_record(path.parent)),
    State("cleaning.json", [CleaningReport(CleaningOptions()).to_dict()], read_report, dict),
    State("train.jsonl", [{"image": "a", "captions": ["A."], "tokens": ["a"]}] * 2,
          lambda path: read_split(path.parent, "train"), list),
    State("a.json", [{"analysis": "gates", "conditions": {"machine": MACHINE}, "rows": [{"x": 1.0}, {"x": None}]}],
          read_measurement, Measurement),
    State("1.json", copied(min((ROOT / "study/results/runs").glob("multi30k*/*/*.json"))), read_record, Record),
    State("checkpoints.json", copied(ROOT / "checkpoints.json"), read_registry, dict),
    State("store/features.json", write_features, read_features, list),
    State("config.json", write_image_model, lambda path: load_model(path.parent)),
    State(CONFIG, write_caption_model, lambda path: load_captioning_model(path.parent)),
    State("trace.jsonl", [
        {"update": 1, "blocks": [{"block": "encoder.layers.0", "x": 1.0, "f": 1.0, "y": 1.0, "gradient": 0.1}]}],
          lambda path: read_trace(path, model="m", seed=1)),
]  # fmt: skip


@pytest.mark.parametrize("state", [pytest.param(each, id=f"{each.name}-{n}") for n, each in enumerate(STATES)])
def test_damaged_state(state: State, tmp_path: Path) -> None:
    path = tmp_path / state.name
    path.parent.mkdir(exist_ok=True)
    if isinstance(state.lines, list):
        plain = [json.loads(state_line(line)) for line in state.lines]
    else:
        state.lines(path)
        plain = [json.loads(path.read_text())]

    def written(lines: list[Any]) -> bytes:
        return "".join(state.form.replace("{}", in_json(line)) for line in lines).encode()

    def read() -> Any:
        found = holds(state.read, path)
        assert isinstance(found, (state.kind, ValueError)), found
        return found

    path.write_bytes(written(plain))
    assert not isinstance(read(), Exception)

    @example(([0.9], "same", None), ("same", 0.0, 0), "nested")
    @example(([0.9, 0.9], "replace", None), ("same", 0.0, 0), "")
    @example(([0.9, 0.9], "replace", "x"), ("same", 0.0, 0), "")
    @example(([0.9, 0.5], "replace", 10**30), ("same", 0.0, 0), "")
    @example(([0.9], "same", None), ("cut", 0.0, 0), "")
    @example(([0.9], "same", None), ("same", 0.0, 0), "twice")
    @given(edits(), damages, st.sampled_from(["", "", "twice", "nested"]), share=2)
    def changed(edit: Any, damage: Any, more: str) -> None:
        content = written(edited(plain, edit))
        if more == "twice":
            content = content.replace(b"{", b'{"a": 1, "a": 2, ')
        elif more == "nested":
            content = content.replace(b": ", b": " + b"[" * 5_000 + b"]" * 5_000 + b', "a": ', 1)
        path.write_bytes(damaged(content, damage))
        read()

    changed()


TENSORS = {"fc.bias": torch.ones(10)}
ABOUT = {
    "settings": {"depth": 8}, "iteration": 3, "iterations": 11, "model": TENSORS,
    "config": {
        "task": "vision", "model": {"depth": 8, "connection": "2rskip+ln"}, "dataset": "images", "classes": ["a", "b"],
        "images": OWN_IMAGES,
    },
}  # fmt: skip
CHECKPOINTS: dict[str, tuple[dict[str, Any], list[Callable[[Path], Any]]]] = {
    "fairseq's": (
        {
            "cfg": {"model": {"arch": "x", "connection": "2rskip+ln"}, "task": {"_name": "translation"}},
            "model": {"a": torch.ones(2)}, "extra_state": {"val_loss": 3.0}, "args": None, "averaged_from": ["a.pt"],
        },
        [read_fairseq, read_validation, lambda path: average_checkpoints([path, path])],
    ),
    "a training's": (
        {
            **ABOUT, "seed": 1, "processes": 1, "curve": [asdict(POINT)], "seconds": 0.5, "sums": [1.0, 2.0],
            "optimiser": {"state": {0: {"momentum_buffer": torch.ones(10)}}, "param_groups": [{"params": [0]}]},
            "count": 3, "data": {"size": 32},
            "sessions": [{"from": 0, "device": "cpu", "torch": "2", "seconds": 3.0}],
        },
        [read_checkpoint],
    ),
    "a training's, as a model": ({**ABOUT, "optimiser": {}}, [load_model]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_damaged_checkpoints(name: str, tmp_path: Path) -> None:
    path, (whole, readers) = tmp_path / "checkpoint.pt", CHECKPOINTS[name]

    @given(edits())
    def changed(edit: Any) -> None:
        try:
            torch.save(edited(whole, edit), path)
        except (UnicodeEncodeError, OverflowError, RecursionError):  # pickle can't hold the value
            return
        for read in readers:
            holds(read, path)

    torch.save(whole, path)
    assert name.endswith("model") or not isinstance(readers[0](path), Exception)
    changed()
