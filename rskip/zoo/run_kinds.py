"""What the kinds of runs tell of their models: translation, and classification of CIFAR's images."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rskip.corpora import find_corpus
from rskip.corpora.corpus import PublishedCorpus
from rskip.zoo.entry import WEIGHTS

Record = Mapping[str, Any]
"""A record of `rskip.experiments` as its JSON file holds it."""

_ARCHITECTURE = re.compile(r"transformer_(skip_ln|xskip_ln|xskip|wskip_ln|rskip_ln|sas|prenorm)(_(?P<size>[a-z0-9]+))?")
_CORPUS = re.compile(r"(?P<dataset>.+)-(?P<source>[a-z]{2})-(?P<target>[a-z]{2})")
_AGAIN = "publish the run again, `rskip run RECIPE --publish`"
_CIFAR_TERMS = (
    "no licence stated; source: Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, "
    "https://www.cs.toronto.edu/~kriz/cifar.html"
)


@dataclass(frozen=True, kw_only=True)
class RunModel:
    """The model of a run: the parts of its name, what its figures were measured on, and the terms of its data."""

    task: str
    architecture: str
    connection: str
    name_of_dataset: str
    languages: tuple[str, str] | None
    dataset: str
    split: str
    data_terms: str


@dataclass(frozen=True, kw_only=True)
class RunKind:
    """A kind of run.

    :param describe: the model in a published folder, with the run's record.
    :param metrics: those that an entry shows; the published weights were measured by the first.
    """

    describe: Callable[[Path, Record], RunModel]
    metrics: tuple[str, ...]


def _translation(folder: Path, record: Record) -> RunModel:
    from safetensors import safe_open

    corpus = find_corpus(record["config"]["corpus"])
    match = _CORPUS.fullmatch(corpus.name)
    assert match is not None, corpus.name
    with safe_open(folder / WEIGHTS, framework="np") as file:
        config = json.loads((file.metadata() or {}).get("config", "{}"))
    architecture = _ARCHITECTURE.fullmatch(config.get("arch", ""))
    model = config.get("model", {})
    connection = model.get("connection")
    if architecture is None or connection is None:
        raise ValueError(f"{folder / WEIGHTS} is no Transformer with a connection of rskip's: its metadata names none")
    for stack in ("encoder", "decoder"):
        if (own := model.get(f"{stack}_connection") or connection) != connection:
            raise ValueError(
                f"{folder / WEIGHTS}: its {stack} has the connection {own}, the rest {connection}, and a model's name "
                "has room for one: load it from its folder, Translator.from_pretrained(FOLDER)"
            )
    split = record["config"]["evaluate"]["split"]
    texts = corpus.splits.get(split, ()) if isinstance(corpus, PublishedCorpus) else ()
    return RunModel(
        task="translation",
        architecture=f"transformer_{architecture['size'] or 'base'}",
        connection=connection,
        name_of_dataset=match["dataset"],
        languages=(corpus.source, corpus.target),
        dataset=corpus.name,
        split="+".join(text.name for text in texts) or split,
        data_terms=f"{corpus.licence}; source: {corpus.citation}, {corpus.homepage}",
    )


def _vision(folder: Path, record: Record) -> RunModel:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        dataset, depth = config["dataset"], config["model"]["depth"]
        connection, shortcut = config["model"]["connection"], config["model"]["shortcut"]
        block = config["model"].get("block", "basic")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} doesn't describe a model ({error!r}): {_AGAIN}") from None
    if (trained_on := record["config"]["train"]["dataset"]) != dataset:
        raise ValueError(f"{path} says {dataset}, the record of {record['run']} {trained_on}: {_AGAIN}")
    return RunModel(
        task="image-classification",
        architecture="_".join(
            [
                f"preact_resnet{depth}",
                *([block] if block != ("bottleneck" if depth == 164 else "basic") else []),
                *([shortcut] if shortcut != "zero_pad" else []),
            ]
        ),
        connection=connection,
        name_of_dataset=dataset,
        languages=None,
        dataset=dataset,
        split="test",
        data_terms=_CIFAR_TERMS,
    )


RUN_KINDS = {
    "translation": RunKind(
        describe=_translation,
        metrics=("sacrebleu", "chrf", "tokenised_bleu", "compound_split_bleu", "accuracy"),
    ),
    "vision": RunKind(describe=_vision, metrics=("error", "accuracy", "top5_error")),
}
