"""Exports the weights of a captioning run, small enough to commit, and describes them for the registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from rskip.captioning.captions import DICTIONARY
from rskip.captioning.data import ensure_data, ensure_features
from rskip.captioning.model_file import export_captioning_model, load_captioning_model
from rskip.captioning.recipe import CaptioningSettings
from rskip.captioning.scoring import DECIMALS, caption_figures, caption_split, score_split
from rskip.captioning.training import scored_file
from rskip.checkpoint.config_file import WEIGHTS, read_config
from rskip.connections import parse_connection
from rskip.corpora import find_caption_corpus
from rskip.records import Record
from rskip.tasks.fairseq.recipe import paper_of
from rskip.tasks.run import Run
from rskip.tasks.task import ModelDescription

_SIZED = re.compile(r"captioning_transformer_\w+?(?:_(?P<size>tiny|small))?")


def export_weights(run: Run[CaptioningSettings], record: Record, folder: Path) -> dict[str, Any]:
    """Writes model.safetensors (in float16), config.json and dict.txt.

    :returns: CIDEr of the exported weights.
    """
    data = ensure_data(run)
    ensure_features(run)
    export_captioning_model(scored_file(run), data / DICTIONARY, folder, dtype=torch.float16)
    model, dictionary = load_captioning_model(folder, "cuda" if run.gpus else "cpu")
    figures = caption_figures(score_split(run, caption_split(run, model, dictionary)))
    return {"cider": round(figures["cider"], DECIMALS)}


def describe(folder: Path, record: Record) -> ModelDescription:
    """Describes the model in a published folder, from its config.json and the corpus of its run record."""
    path = folder / WEIGHTS
    model = read_config(path)["model"]
    encoder, decoder = model["encoder_connection"], model["decoder_connection"]
    if encoder != decoder:
        raise ValueError(
            f"{path}: its encoder has the connection {encoder}, its decoder {decoder}, but a model's name has only "
            "one: load it from its folder"
        )
    corpus, split = find_caption_corpus(record.config["corpus"]), record.config["evaluate"]["split"]
    arch = str(record.config["train"]["arch"])
    sized = _SIZED.fullmatch(arch)
    images, upstream = record.data["images"], record.data["upstream"]
    few = f" ({images['train']:,} of {upstream['train']:,} training images)" if images != upstream else ""
    return ModelDescription(
        architecture=f"captioning_transformer_{(sized and sized['size']) or 'base'}",
        connection=encoder,
        dataset=corpus.name,
        measured_on=f"{corpus.name}{f' ({images[split]:,} images)' if images != upstream else ''}",
        split=split,
        data_terms=f"{corpus.licence}; source: {corpus.citation}, {corpus.homepage}{few}",
        paper=paper_of(parse_connection(encoder)),
    )
