"""The weights of a run, made small enough to be committed, and shown to be as good as the run's own."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path

import torch

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.checksum import sha256_file
from rskip.corpora import find_corpus
from rskip.experiments.data_folder import ensure_data
from rskip.experiments.environment import gpus_to_use
from rskip.experiments.published_folder import (
    MAX_BYTES,
    check_scored_file,
    check_size,
    published_folder,
    write_published,
)
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record, read_record, record_path
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.translation_run import translate
from rskip.experiments.translation_settings import TranslationSettings
from rskip.experiments.translations import Translations, read_translations

MAX_LOSS = 0.05  # sacreBLEU that float16 may cost
SLICE = 100  # sentences from the split's start, scored for a quick check of the published weights


def publish(recipe: Recipe[TranslationSettings], *, seed: int, mirror: str | None = None) -> Record:
    """Writes `checkpoints/<run>/` from a finished run; returns its record with `published` filled in.

    The folder holds model.safetensors (the averaged parameters in float16), text/ (the pipeline),
    dict.<language>.txt and record.json; one seed of a run is published at a time. A folder published before
    is replaced when the new one is whole. Raises FileNotFoundError where the run's files are gone; ValueError
    where the file is over 20 MB or the float16 model scores more than 0.05 sacreBLEU away from the run.
    """
    record = read_record(record_path(recipe.run_name, seed))
    folder = RunFolder.of(recipe.run_name, seed)
    check_scored_file(folder.averaged, record)
    data = ensure_data(recipe.settings, mirror=mirror)
    with published_folder(recipe.run_name) as building:
        weights = building / "model.safetensors"
        averaged = read_checkpoint(folder.averaged)
        corpus = find_corpus(recipe.settings.corpus)
        averaged.config.update(source_lang=corpus.source, target_lang=corpus.target)
        write_checkpoint(weights, averaged, dtype=torch.float16)
        check_size(weights, most=MAX_BYTES, dtype="float16")
        translations = _translate(recipe, weights=weights, data=data, log=folder.path / "publish.log")
        published = dataclasses.replace(record, published=_figures(record, weights, translations))
        shutil.copytree(data / "text", building / "text")
        for dictionary in data.glob("dict.*.txt"):
            shutil.copyfile(dictionary, building / dictionary.name)
        published.write(building / "record.json")
    write_published(published)
    return published


def _translate(recipe: Recipe[TranslationSettings], *, weights: Path, data: Path, log: Path) -> Translations:
    """What the published weights, read back, translate the evaluated split to."""
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint, output = Path(temporary, "published.pt"), Path(temporary, "generated.txt")
        write_checkpoint(checkpoint, read_checkpoint(weights), dtype=torch.float32)
        translate(
            recipe.settings, checkpoint=checkpoint, data=data, output=output, log=log, gpus=gpus_to_use(None)
        )
        return read_translations(output, data=data, split=recipe.settings.evaluate.split)


def _figures(record: Record, weights: Path, translations: Translations) -> dict[str, str | int | float]:
    bleu = translations.score().sacrebleu
    if abs(bleu - record.metrics["sacrebleu"]) > MAX_LOSS:
        raise ValueError(
            f"{record.run} has {bleu:.2f} sacreBLEU in float16, {record.metrics['sacrebleu']:.2f} before: "
            f"expected at most {MAX_LOSS} between them"
        )
    return {
        "file": weights.name,
        "dtype": "float16",
        "bytes": weights.stat().st_size,
        "sha256": sha256_file(weights),
        "sacrebleu": round(bleu, 4),
        "slice_sentences": SLICE,
        "slice_sacrebleu": round(translations.first(SLICE).score().sacrebleu, 4),
    }
