"""The weights of a run, made small enough to be committed, and shown to be as good as the run's own."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path

import torch

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.corpora import find_corpus
from rskip.experiments.data_folder import ensure_data
from rskip.experiments.published_weights import check_scored_file, check_size
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record, read_record, record_path
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.translation_run import translate
from rskip.experiments.translation_settings import TranslationSettings
from rskip.experiments.translations import Translations, read_translations
from rskip.files.checksum import sha256_file
from rskip.machine.environment import gpus_to_use
from rskip.zoo.entry_of_record import MAX_LOSS

SLICE = 100  # sentences from the split's start, scored for a quick check of the published weights


def fill(folder: Path, recipe: Recipe[TranslationSettings], *, seed: int, mirror: str | None = None) -> Record:
    """Writes model.safetensors (the averaged parameters in float16), text/ (the pipeline) and dict.<language>.txt.

    :param folder: to write into.
    :returns: the run's record with `published` filled in.
    :raises FileNotFoundError: the run's files are gone.
    :raises ValueError: the file is over 20 MB, or the float16 model scores more than 0.05 sacreBLEU away from the run.
    :raises CommandFailed: translating with it failed.
    """
    record = read_record(record_path(recipe.run_name, seed))
    run = RunFolder.of(recipe.run_name, seed)
    check_scored_file(run.averaged, record)
    data = ensure_data(recipe.settings, mirror=mirror)
    weights = folder / "model.safetensors"
    averaged = read_checkpoint(run.averaged)
    corpus = find_corpus(recipe.settings.corpus)
    averaged.config.update(source_lang=corpus.source, target_lang=corpus.target)
    write_checkpoint(weights, averaged, dtype=torch.float16)
    check_size(weights, dtype="float16")
    translations = _translate(recipe, weights=weights, data=data, log=run.path / "publish.log")
    shutil.copytree(data / "text", folder / "text")
    for dictionary in data.glob("dict.*.txt"):
        shutil.copyfile(dictionary, folder / dictionary.name)
    return dataclasses.replace(record, published=_figures(record, weights, translations))


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
    bleu = translations.score()["sacrebleu"].value
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
        "slice_sacrebleu": round(translations.first(SLICE).score()["sacrebleu"].value, 4),
    }
