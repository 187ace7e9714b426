"""Provides Transformers and sentence pairs for `rskip analyse`. B sentences, S and T tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rskip.checkpoint import build_transformer, read_checkpoint
from rskip.checkpoint.translation import check_translates
from rskip.connections import ConnectionSpec
from rskip.corpora.binarised import MmapSentences
from rskip.corpora.prepared import PreparedPairs, find_pairs
from rskip.settings.errors import SettingError, errors_about
from rskip.tasks.subject import Batch, Conditions, Subject
from rskip.text import Dictionary
from rskip.transformer import Transformer, TransformerConfig
from rskip.translation.model_files import find_checkpoint

LAYERS = 4
SIZES = {"embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 4}  # those of --arch transformer_..._tiny
BEGIN, PADDING, END = Dictionary.bos_index, Dictionary.pad_index, Dictionary.eos_index


def subject(model: ConnectionSpec | Path, *, depth: int | None, conditions: Conditions) -> Subject:
    """See `rskip.tasks.Work`."""
    if isinstance(model, Path):
        network, folder = _trained(model)
    else:
        network, folder = _at_initialisation(model, LAYERS if depth is None else depth, conditions), None
    return Subject(
        label=model.name if isinstance(model, Path) else str(model),
        depth=network.config.encoder_layers,
        model=network.eval().requires_grad_(),
        trained=isinstance(model, Path),
        data="translation" if conditions.data is None else Path(conditions.data).name,
        batches=partial(_batches, network, folder),
    )


def _trained(path: Path) -> tuple[Transformer, Path]:
    """The model of a checkpoint, and the checkpoint's folder."""
    file = find_checkpoint(path)
    checkpoint = read_checkpoint(file)
    with errors_about(file):
        check_translates(checkpoint.config, checkpoint.shapes)
        rows = [checkpoint.model[f"{side}.embed_tokens.weight"].size(0) for side in ("encoder", "decoder")]
        return build_transformer(checkpoint, source_vocabulary=rows[0], target_vocabulary=rows[1]), file.parent


def _at_initialisation(spec: ConnectionSpec, layers: int, conditions: Conditions) -> Transformer:
    """A new model. It shares embeddings if the dictionaries are the same."""
    if layers < 1:
        raise SettingError.of_value("depth", layers, "1 or more, the layers of each stack")
    sizes = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in SIZES.items()}
    source, target = _dictionaries(_find_data(conditions))
    config = TransformerConfig.from_dict(
        {
            **sizes,
            "source_vocabulary": len(source),
            "target_vocabulary": len(target),
            "share_all_embeddings": source.tokens == target.tokens,
            "share_decoder_input_output_embed": True,
            **{f"{stack}_layers": layers for stack in ("encoder", "decoder")},
            **{f"{stack}_connection": str(spec) for stack in ("encoder", "decoder")},
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(conditions.seed)
        return Transformer(config)


def _batches(model: Transformer, folder: Path | None, conditions: Conditions) -> Iterator[Batch]:
    """Batches in ascending order of length, which reduces padding."""
    data = _find_data(conditions)
    _check_dictionaries(model, folder, data)
    sides = [_sentences(data, conditions.split, language) for language in data.languages]
    rows = conditions.choose(len(sides[0]), f"{data.path}'s {conditions.split} pairs")
    pairs = [tuple(torch.from_numpy(side.sentence(row)) for side in sides) for row in rows]
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    for start in range(0, len(pairs), conditions.batch_size):
        source, target = (
            pad_sequence(list(side), batch_first=True, padding_value=PADDING)
            for side in zip(*pairs[start : start + conditions.batch_size], strict=True)
        )
        start = BEGIN if model.target_start == "begin" else END
        prefix = torch.cat([target.new_full((len(target), 1), start), target[:, :-1]], dim=1)
        prefix.masked_fill_(target.eq(PADDING), PADDING)  # removes the end symbol of shorter sentences
        masks = {"encoder": source.ne(PADDING), "decoder": target.ne(PADDING)}
        yield Batch(partial(_losses, model, source, prefix, target), masks)


def _losses(model: Transformer, source: Tensor, prefix: Tensor, target: Tensor) -> Tensor:
    """The mean cross-entropy of each sentence's target tokens, including its end."""
    logits = model(source, prefix)  # (B, T, V)
    losses = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=PADDING, reduction="none")  # (B, T)
    return losses.sum(dim=1) / target.ne(PADDING).sum(dim=1)


def _find_data(conditions: Conditions) -> PreparedPairs:
    if conditions.data is None:
        advice = "give the folder that `rskip prepare` made, such as data-bin/multi30k-en-de"
        raise SettingError("data", "is missing", expected="sentence pairs for a translation model", advice=advice)
    return find_pairs(conditions.data)


def _dictionaries(data: PreparedPairs) -> list[Dictionary]:
    return [Dictionary.load(data.dictionaries[language]) for language in data.languages]


def _check_dictionaries(model: Transformer, folder: Path | None, data: PreparedPairs) -> None:
    """Raises an error if sizes, or files next to the checkpoint, show that the data has other dictionaries."""
    sizes = (model.config.source_vocabulary, model.config.target_vocabulary)
    for dictionary, language, size in zip(_dictionaries(data), data.languages, sizes, strict=True):
        own = folder / f"dict.{language}.txt" if folder else None
        if len(dictionary) != size or (own and own.is_file() and Dictionary.load(own).tokens != dictionary.tokens):
            advice = "give the data that the model was trained on"
            raise SettingError("data", f"is {data.path}, whose {language} dictionary is not the model's", advice=advice)


def _sentences(data: PreparedPairs, split: str, language: str) -> MmapSentences:
    """One language's side of a split. Of a training set in shards, only the first shard."""
    if split not in data.splits:
        raise SettingError.of_value("split", split, f"one of {', '.join(data.splits)}, which {data.path} has")
    return MmapSentences(data.splits[split][0] / f"{split}.{'-'.join(data.languages)}.{language}")
