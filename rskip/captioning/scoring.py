"""Scores a captioning run: captions the images of a split from their features, and scores them. Publishes its model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from rskip.captioning.captions import DICTIONARY, CaptionedImage, read_split
from rskip.captioning.data import data_folder, describe_data, ensure_data, ensure_features, feature_store
from rskip.captioning.features import open_features
from rskip.captioning.metrics import CaptionScores, score_captions
from rskip.captioning.model import batch_features, search_captions
from rskip.captioning.model_file import export_captioning_model, load_captioning_model, read_captioning_checkpoint
from rskip.captioning.recipe import CaptioningSettings
from rskip.captioning.training import read_log, scored_file, trainings_of
from rskip.checkpoint.config_file import WEIGHTS, read_config
from rskip.connections import parse_connection
from rskip.corpora import find_caption_corpus
from rskip.files.state import read_state_lines, state_line
from rskip.files.whole import atomic_file
from rskip.records import Record
from rskip.tasks.fairseq.recipe import paper_of
from rskip.tasks.fairseq.training import profiled_weights
from rskip.tasks.run import Run
from rskip.tasks.task import ModelDescription, Outcome
from rskip.text import Dictionary

DECIMALS = 4
_AT_ONCE = 64  # images per batch of the search
_SIZED = re.compile(r"captioning_transformer_\w+?(?:_(?P<size>tiny|small))?")


def score(run: Run[CaptioningSettings]) -> Outcome:
    """Captions the evaluated split with the scored checkpoint, unless that is done already, and scores the captions.

    Metrics are times 100, as in papers: `cider`, `bleu4` to `bleu1`, `rouge_l`, `meteor` and `spice` if available, and
    `valid_cider` of the scored checkpoint with greedy search.
    """
    if not all(training.done for training in trainings_of(run)):
        return _outcome(run, None)  # it diverged
    output = captions_file(run)
    if not output.exists():
        print(f"captioning {run.settings.evaluate.split}", flush=True)
        _write_captions(run, output)
    scores = score_split(run, _read_captions(output))
    for reason in (f"{name} {reason}" for name, reason in scores.missing.items()):
        print(reason, flush=True)
    return _outcome(run, scores)


def _outcome(run: Run[CaptioningSettings], scores: CaptionScores | None) -> Outcome:
    """The result of a run from its scores and its log. A diverged training has no scores."""
    logs = read_log(run, ended=scores is not None)
    last = logs[list(logs)[-1]]
    curve: list[Mapping[str, Any]] = []
    for stage, log in logs.items():
        curve += [{**epoch.as_dict(), **({"stage": stage} if len(logs) > 1 else {})} for epoch in log.curve]
    figures, signatures = {}, {}
    if scores is not None:
        figures = {name: 100 * value for name, value in scores.values.items()}
        valid = [epoch.more["valid_cider"] for epoch in last.curve if "valid_cider" in epoch.more]
        if valid:
            figures["valid_cider"] = 100 * (max(valid) if run.settings.checkpoint == "best" else valid[-1])
        if last.curve[-1].valid_loss is not None:
            figures["valid_loss"] = last.curve[-1].valid_loss
        signatures["cider"] = (
            f"coco-caption's CIDEr (CIDEr-D), times 100; {scores.images} pictures; tokeniser: {scores.tokeniser}"
        )
    assert last.parameters is not None
    return Outcome(
        metrics={name: round(value, DECIMALS) for name, value in figures.items()},
        signatures=signatures,
        curve=curve,
        training={
            "seconds": sum(log.seconds for log in logs.values()),
            "epochs": sum(log.curve[-1].epoch for log in logs.values() if log.curve),
            "updates": sum(log.updates or 0 for log in logs.values()),
            "target_tokens_per_second": next(iter(logs.values())).target_tokens_per_second,
            **profiled_weights(run, run.settings.train),
        },
        parameters=last.parameters,
        data=describe_data(run.settings),
    )


def score_split(run: Run[CaptioningSettings], captions: dict[str, str]) -> CaptionScores:
    """Scores captions of the evaluated split against all references of their images."""
    images = read_split(data_folder(run.settings), run.settings.evaluate.split)
    return score_captions({image.name: image.captions for image in images}, captions)


def caption_split(run: Run[CaptioningSettings], model: Any, dictionary: Any) -> dict[str, str]:
    """One caption per image of the evaluated split that has features, in order."""
    settings = run.settings
    store = open_features(feature_store(settings))
    names = [image.name for image in _images(settings) if image.name in store]
    captions: dict[str, str] = {}
    for start in range(0, len(names), _AT_ONCE):
        batch = names[start : start + _AT_ONCE]
        features = batch_features([store[name] for name in batch])
        found = search_captions(model, *features, settings.generate.options())
        for name, (best, *_) in zip(batch, found, strict=True):
            captions[name] = dictionary.decode(best.tokens.tolist())
    return captions


def captions_file(run: Run[CaptioningSettings]) -> Path:
    """The file with one line of JSON per image of the evaluated split: its name and its caption."""
    return run.folder.path / f"captions-{run.settings.evaluate.split}.jsonl"


def artifacts(run: Run[CaptioningSettings]) -> dict[str, str]:
    """Files of a run for the user."""
    return {
        str(run.folder.train_log): "output of the training",
        str(captions_file(run)): "one caption per image",
        str(scored_file(run)): "the scored model",
    }


def sample_outputs(run: Run[CaptioningSettings], count: int) -> str:
    """The first images of the evaluated split with a reference and the model's caption; empty if they are missing."""
    output = captions_file(run)
    if not (output.exists() and data_folder(run.settings).exists()):
        return ""
    captions = _read_captions(output)
    lines = []
    for image in [image for image in _images(run.settings) if image.name in captions][:count]:
        lines += ["", f"  image      {image.name}", f"  reference  {image.captions[0]}"]
        lines.append(f"  model      {captions[image.name]}")
    return "\n".join(lines)


def _images(settings: CaptioningSettings) -> list[CaptionedImage]:
    return read_split(data_folder(settings), settings.evaluate.split)


def _write_captions(run: Run[CaptioningSettings], output: Path) -> None:
    model = read_captioning_checkpoint(scored_file(run)).to("cuda" if run.gpus else "cpu")
    captions = caption_split(run, model, Dictionary.load(data_folder(run.settings) / DICTIONARY))
    with atomic_file(output) as temporary, temporary.open("w", encoding="utf-8") as file:
        for name, caption in captions.items():
            file.write(state_line(_Captioned(image=name, caption=caption)))


class _Captioned(msgspec.Struct, frozen=True, kw_only=True):
    image: str
    caption: str


def _read_captions(path: Path) -> dict[str, str]:
    lines = read_state_lines(path, _Captioned, advice="delete it to caption the images again", finished=True)
    return {line.image: line.caption for line, _ in lines}


def export_weights(run: Run[CaptioningSettings], record: Record, folder: Path) -> dict[str, Any]:
    """Writes model.safetensors (in float16), config.json and dict.txt.

    :returns: CIDEr of the exported weights.
    """
    data = ensure_data(run)
    ensure_features(run)
    export_captioning_model(scored_file(run), data / DICTIONARY, folder, dtype=torch.float16)
    model, dictionary = load_captioning_model(folder, "cuda" if run.gpus else "cpu")
    scores = score_split(run, caption_split(run, model, dictionary))
    return {"cider": round(100 * scores.values["cider"], DECIMALS)}


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
