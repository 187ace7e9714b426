"""Exports a translation run's weights in float16, and describes them for the registry."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from rskip.checkpoint import read_checkpoint, write_checkpoint, write_model
from rskip.checkpoint.config_file import WEIGHTS, read_config
from rskip.connections import parse_connection
from rskip.corpora import find_corpus
from rskip.corpora.corpus import PublishedCorpus
from rskip.records import Record
from rskip.settings.user_dir import import_user_dir
from rskip.tasks.fairseq.recipe import paper_of
from rskip.tasks.run import Run
from rskip.tasks.task import ModelDescription
from rskip.translation.data import data_folder, ensure_data, languages
from rskip.translation.recipe import TranslationSettings
from rskip.translation.scoring import DECIMALS, Translations, read_translations, translate
from rskip.translation.training import scored_file

_SIZED = re.compile(r"transformer_\w+?(?:_(?P<size>tiny|small|iwslt|2layer|big))?")
_CORPUS = re.compile(r"(?P<dataset>.+)-[a-z]{2}-[a-z]{2}")


def check_publishable(record: Record) -> None:
    """:raises ValueError: the run was trained on a data folder, not on a registered corpus."""
    if (own := record.config.get("data")) is not None:
        raise ValueError(
            f"{record.run} was trained on {own}, which is not a registered corpus: a published model names its data's "
            "source and licence; give others the folder that `rskip train` wrote, which `rskip.load` reads"
        )


def export_weights(run: Run[TranslationSettings], record: Record, folder: Path) -> dict[str, Any]:
    """Writes config.json, model.safetensors (the averaged parameters in float16), text/ and dict.<language>.txt.

    :returns: sacreBLEU of the exported weights.
    """
    data = ensure_data(run.settings, mirror=run.mirror)
    if not (data / "text").is_dir():
        problem = f"{data} has no text/: a published model translates raw sentences"
        raise ValueError(f"{problem}; prepare the data with `rskip prepare`")
    write_files(run, folder)
    translations = _translate(run, weights=folder / WEIGHTS, data=data)
    return {"sacrebleu": round(translations.score()["sacrebleu"].value, DECIMALS)}


def write_files(run: Run[TranslationSettings], folder: Path) -> None:
    """Writes the files of `export_weights` without scoring them. There is no text/ if the data has none."""
    data, (source, target) = data_folder(run.settings), languages(run.settings)
    checkpoint = read_checkpoint(scored_file(run))
    checkpoint.config.update(task="translation", source_lang=source, target_lang=target)
    write_model(folder, checkpoint, dtype=torch.float16)
    if (data / "text").is_dir():
        shutil.copytree(data / "text", folder / "text")
    for dictionary in data.glob("dict.*.txt"):
        shutil.copyfile(dictionary, folder / dictionary.name)


def _translate(run: Run[TranslationSettings], *, weights: Path, data: Path) -> Translations:
    """The translations of the evaluated split by the exported weights."""
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint, output = Path(temporary, "published.pt"), Path(temporary, "generated.txt")
        write_checkpoint(checkpoint, read_checkpoint(weights), dtype=torch.float32)
        translate(run, checkpoint=checkpoint, output=output, log=run.folder.path / "publish.log")
        return read_translations(output, data=data, split=run.settings.evaluate.split)


def describe(folder: Path, record: Record) -> ModelDescription:
    """Describes the model in a published folder, from its config.json and the corpus of its record."""
    path = folder / WEIGHTS
    if (user_dir := record.config.get("train", {}).get("user-dir")) is not None:
        import_user_dir(Path(user_dir), setting="train.user-dir")  # registers its connections
    corpus, split = find_corpus(record.config["corpus"]), record.config["evaluate"]["split"]
    named = _CORPUS.fullmatch(corpus.name)
    assert named is not None, corpus.name
    config = read_config(path)
    arch, model = config["arch"], config["model"]
    connection = model.get("connection")
    if arch is None or connection is None:
        raise ValueError(f"{path} names no connection: expected the config of a Transformer with a connection of rskip")
    of_stacks = {"encoder": model.get("encoder_connection"), "decoder": model.get("decoder_connection")}
    for stack, own in of_stacks.items():
        if own and own != connection:
            raise ValueError(
                f"{path}: its {stack} has the connection {own}, the rest {connection}, but a published model's name "
                "has one connection: load the model from its folder, Translator.from_pretrained(FOLDER)"
            )
    spec, sized = parse_connection(connection), _SIZED.fullmatch(arch)
    texts = corpus.splits.get(split, ()) if isinstance(corpus, PublishedCorpus) else ()
    return ModelDescription(
        architecture=f"transformer_{sized['size'] or 'base'}" if sized else re.sub(r"[^a-z0-9_]", "_", arch.lower()),
        connection=connection,
        dataset=named["dataset"],
        languages=(corpus.source, corpus.target),
        measured_on=corpus.name,
        split="+".join(text.name for text in texts) or split,
        data_terms=f"{corpus.licence}; source: {corpus.citation}, {corpus.homepage}",
        paper=paper_of(spec),
    )
