"""What the tasks whose model is a Transformer have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, TypeVar

from rskip.tasks.task import Column, Task

SettingsT = TypeVar("SettingsT")


class _Evaluated(TypedDict, total=False):
    split: str


class _Required(TypedDict):
    corpus: str


class _Recorded(_Required, total=False):
    train: dict[str, Any]
    evaluate: _Evaluated


class TransformerTask(Task[SettingsT]):
    """A task whose recipes name a corpus, the split that is scored, and fairseq-train's flags of a Transformer."""

    recorded = _Recorded
    ranked_by = Column("valid_loss", "validation loss, bits a token")

    def dataset(self, config: Mapping[str, Any]) -> str:
        corpus, split = str(config["corpus"]), config.get("evaluate", {}).get("split", "test")
        return corpus if split == "test" else f"{corpus}, {split}"

    def architecture_changes(self, config: Mapping[str, Any]) -> dict[str, Any]:
        sizes = ("embed-dim", "ffn-embed-dim", "layers", "attention-heads")
        names = [f"{stack}-{size}" for stack in ("encoder", "decoder") for size in sizes]
        names.append("value-residual")
        return {name: config["train"][name] for name in names if name in config["train"]}
