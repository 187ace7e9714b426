"""Reads the folders of Hugging Face's FSMTForConditionalGeneration, such as those of fairseq's WMT19 models.

The model is fairseq's post-norm Transformer. Only the notation of the subword units differs: here the last unit of a
word is marked (`</w>`), and in our dictionaries every other one (`@@`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rskip.checkpoint.hugging_face import common
from rskip.checkpoint.hugging_face.folder import Folder
from rskip.checkpoint.hugging_face.model import HuggingFaceModel
from rskip.checkpoint.stock import POSTNORM
from rskip.files.text_lines import read_lines
from rskip.settings.check import convert
from rskip.settings.errors import shown
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding

SOURCE_VOCABULARY, TARGET_VOCABULARY, MERGES = "vocab-src.json", "vocab-tgt.json", "merges.txt"
_END = "</w>"
_OUTPUT = "model.decoder.output_projection.weight"


def read(folder: Folder, *, languages: tuple[str | None, str | None]) -> HuggingFaceModel:
    """The model of an FSMT folder. See `read_hugging_face`."""
    config = common.read_settings(folder, tie_word_embeddings=False)
    common.check_fairseq_order(config, folder)
    about = common.read_optional(folder, common.TOKENIZER)
    common.refuse_added(
        [token for token in common.numbered_tokens(folder, {}) if token not in common.FIRST], "in FSMT", folder
    )
    langs = about.get("langs") or config.langs
    own = convert(langs, tuple[str, str], name="langs", source=str(folder.path / common.TOKENIZER))
    _check_pair(own, languages, folder)
    weights = folder.tensors()
    tables = _tables(weights, config, folder)
    text = TextConfig(
        source_language=own[0],
        target_language=own[1],
        normalise_punctuation="scripts",
        tokeniser="moses",
        lowercase=bool(about.get("do_lower_case")),
    )
    return HuggingFaceModel(
        checkpoint=common.checkpoint(
            "fsmt",
            {**common.stack_weights(weights), **tables.weights()},
            config,
            connection=POSTNORM,
            learned=False,
            **tables.settings(),
        ),
        text=TextPipeline(text, _merges(folder)),
        source=_dictionary(folder, SOURCE_VOCABULARY, len(tables.source)),
        target=_dictionary(folder, TARGET_VOCABULARY, len(tables.target)),
        pair=own,
    )


def _check_pair(own: tuple[str, str], given: tuple[str | None, str | None], folder: Folder) -> None:
    """Refuses other languages than the model's own two."""
    for side, name, wanted in zip(("source", "target"), own, given, strict=True):
        if wanted not in (None, name):
            problem = f"is {shown(wanted)}, but the model translates {own[0]} to {own[1]}"
            raise folder.error(problem, name=f"{side}_language")


def _tables(weights: Mapping[str, Tensor], config: common.StackSettings, folder: Folder) -> common.Tables:
    """The tables. Where the files hold equal ones, or one for several, they are one."""
    target = common.find_table(weights, (common.SIDES[1], _OUTPUT, *common.SIDES), folder)
    source = target
    if not config.tie_word_embeddings:
        source = common.find_table(weights, common.SIDES, folder)
    output = weights.get(_OUTPUT, target)
    return common.Tables(*(target if torch.equal(each, target) else each for each in (source, target, output)))


def _merges(folder: Folder) -> BytePairEncoding:
    """The merges, in subword-nmt's notation, without their counts."""
    path = folder.file(MERGES)
    lines = [line.split()[:2] for line in read_lines(path)]
    if lines and lines[0][:1] == ["#version:"]:
        lines = lines[1:]
    merges = "".join(f"{' '.join(units)}\n" for units in lines if units)
    try:
        return BytePairEncoding(f"#version: 0.2\n{merges}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _dictionary(folder: Folder, name: str, size: int) -> Dictionary:
    """The dictionary of a vocabulary's file, for an embedding of so many rows."""
    source = str(folder.path / name)
    vocabulary = common.token_numbers(folder.read_object(name), source=source)
    rows = {token if token in common.FIRST else _unit(token): number for token, number in vocabulary.items()}
    return common.dictionary_of(rows, size, source=source)


def _unit(token: str) -> str:
    return token.removesuffix(_END) if token.endswith(_END) else f"{token}@@"
