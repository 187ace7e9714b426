"""Builds the Transformer of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.fairseq_languages import MULTILINGUAL_TASKS, language_pairs, of_pair
from rskip.checkpoint.fairseq_settings import KNOWN, TRANSFORMER_SETTING, UNSUPPORTED
from rskip.checkpoint.stock import from_old_stock, from_stock, stock_connection
from rskip.connections import parse_connection
from rskip.connections.registry import UnknownFamily
from rskip.files.torch_file import weights_difference
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.config import StackConfig
from rskip.transformer.undrawn import undrawn

TASKS = ("translation", "rskip_translation", *MULTILINGUAL_TASKS)
# Matrices of every encoder-decoder Transformer, in all versions of fairseq.
_PARTS = (
    "encoder.layers.0.fc1.weight",
    "decoder.layers.0.encoder_attn.out_proj.weight",
    "encoder.layers.0.self_attn.out_proj.weight",
    "decoder.layers.0.self_attn.out_proj.weight",
)
_EMBEDDINGS = {"source": "encoder.embed_tokens.weight", "target": "decoder.embed_tokens.weight"}


def build_transformer(
    checkpoint: Checkpoint,
    *,
    source_vocabulary: int,
    target_vocabulary: int,
    padding_index: int = 1,
    as_stored: bool = False,
) -> Transformer:
    """Builds the translation model of a checkpoint of ours or of fairseq's own `transformer`.

    The model is in eval mode and has no gradients. Settings that a checkpoint of fairseq lacks are the defaults of its
    base `transformer`.

    :param source_vocabulary: size of the source dictionary, including special tokens.
    :param target_vocabulary: size of the target dictionary, likewise.
    :param as_stored: whether to use the checkpoint's tensors in their types. Otherwise the parameters are copies in
        float32. The tensors of a safetensors file are mapped, so they need no memory until they are used.
    :raises SettingError: the checkpoint has another task or kind of model, parts that `Transformer` lacks, or a
        connection that is not registered, or the sizes of the dictionaries differ.
    """
    check_translates(checkpoint)
    settings = _settings(checkpoint)
    stock = _is_stock(settings)
    for side, size in (("source", source_vocabulary), ("target", target_vocabulary)):
        check_vocabulary(side, checkpoint.model[_EMBEDDINGS[side]].size(0), size)
    connections = _stock_connections(settings) if stock else _own_connections(settings)
    _check_connections(connections)
    known = {field.name for field in fields(TransformerConfig)}
    values = {name: value for name, value in settings.items() if name in known and value is not None}
    dictionaries = {
        "source_vocabulary": source_vocabulary,
        "target_vocabulary": target_vocabulary,
        "padding_index": padding_index,
    }
    config = TransformerConfig(**{**values, **connections, **dictionaries, "checkpoint_activations": False})
    check_sizes(config, checkpoint.model)
    with undrawn():
        model = Transformer(config)
    parameters: Mapping[str, Tensor] = checkpoint.model
    if stock:
        tied = config.share_all_embeddings or config.share_decoder_input_output_embed
        parameters = from_stock(from_old_stock(parameters, tied_output=tied))
    described = f"the Transformer that its settings describe ({config.encoder_connection}, {config.decoder_connection})"
    check_parameters(model.state_dict(), parameters, described)
    model.load_state_dict(dict(parameters), assign=True)
    if config.output_is_embedding:  # assigning has untied them
        model.decoder.embed_tokens.weight = model.decoder.output_projection.weight
    if not as_stored:
        model._apply(_own_float32)
    return model.requires_grad_(False).eval()


def _own_float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32, copy=True) if tensor.is_floating_point() else tensor.clone()


def _settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """The checkpoint's settings, including those that fairseq derives from others."""
    settings = dict(checkpoint.config["model"])
    for name in ("embed_dim", "ffn_embed_dim"):
        if settings.get(f"encoder_{name}") is not None:
            settings.setdefault(f"decoder_{name}", settings[f"encoder_{name}"])
    return settings


def _own_connections(settings: Mapping[str, Any]) -> dict[str, Any]:
    sides = ("encoder_connection", "decoder_connection")
    given = {side: settings.get(side) or settings.get("connection") for side in sides}
    return {side: connection for side, connection in given.items() if connection}


def _stock_connections(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{side}_connection": stock_connection(normalize_before=bool(settings.get(f"{side}_normalize_before")))
        for side in ("encoder", "decoder")
    }


def _check_connections(connections: Mapping[str, str]) -> None:
    for name, spec in connections.items():
        try:
            parse_connection(spec)
        except UnknownFamily as error:
            advice = "import the module that registers it (--user-dir), then load the model"
            raise SettingError(name, error.problem, expected=error.expected, advice=advice) from None
        except SettingError as error:
            raise error.named(name) from None


def _is_stock(settings: Mapping[str, Any]) -> bool:
    return settings.get("connection") is None and settings.get("encoder_connection") is None


def check_translates(checkpoint: Checkpoint) -> None:
    """Checks whether `build_transformer` supports a checkpoint, apart from the dictionaries.

    :raises SettingError: the checkpoint has another task or kind of model, or parts that `Transformer` lacks.
    """
    settings = _settings(checkpoint)
    _check_task(checkpoint)
    if pairs := language_pairs(checkpoint):
        source, _, target = pairs[0].partition("-")
        checkpoint = of_pair(checkpoint, source, target)
    _check_kind(checkpoint)
    if _is_stock(settings):
        _check_supported(settings)
    _check_known(settings, all_of_model=bool(checkpoint.config.get("structured")))


def _check_task(checkpoint: Checkpoint) -> None:
    arch, task = checkpoint.config["arch"], checkpoint.config["task"]
    if task not in TASKS:
        raise SettingError("", f"a checkpoint of the task {task!r} (architecture {arch!r}), not of translation")


def _check_kind(checkpoint: Checkpoint) -> None:
    arch = checkpoint.config["arch"]
    for name in (*_PARTS, *_EMBEDDINGS.values()):
        if name not in checkpoint.model:
            raise SettingError(
                "",
                f"a checkpoint of the architecture {arch!r}, which is not an encoder-decoder Transformer: "
                f"it has no {name}",
            )
        if checkpoint.model[name].dim() != 2:
            raise SettingError("", f"{name} has the shape {tuple(checkpoint.model[name].shape)}", expected="a matrix")
    for name in checkpoint.model:
        if "classification_heads." in name:
            raise SettingError("", f"a checkpoint of the architecture {arch!r} that classifies: it has {name}")


def _check_supported(settings: Mapping[str, Any]) -> None:
    for name in UNSUPPORTED:
        if settings.get(name):
            raise SettingError(
                "", f"a checkpoint with {name}={settings[name]!r}, which rskip's Transformer doesn't have"
            )
    features = settings.get("decoder_embed_dim") or TransformerConfig.decoder_embed_dim
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if isinstance(size := settings.get(name), int) and size != features:
            raise SettingError("", f"a checkpoint with {name}={size}, other than its decoder_embed_dim={features}")
    if settings.get("decoder_normalize_before") and settings.get("no_decoder_final_norm"):
        raise SettingError("", "a checkpoint with no_decoder_final_norm=True, which rskip's Transformer doesn't have")


def _check_known(settings: Mapping[str, Any], *, all_of_model: bool) -> None:
    """Raises SettingError for a setting that rskip doesn't know, because its effect is unknown.

    :param all_of_model: whether all settings are the model's. Otherwise some may be the run's.
    """
    for name, value in settings.items():
        if value and name not in KNOWN and (all_of_model or TRANSFORMER_SETTING.fullmatch(name)):
            problem = f"a checkpoint with {name}={value!r}, a setting that rskip doesn't know"
            raise SettingError("", problem, advice="translate with fairseq-generate")


def check_vocabulary(side: str, rows: int, size: int) -> None:
    """Raises `SettingError` for a dictionary of `size` tokens if the model's embedding has another number of rows."""
    if rows != size:
        raise SettingError(
            "",
            f"the dictionaries belong to another model: the {side} one has {size:,} tokens (including 4 special ones), "
            f"the model {rows:,}",
            advice="give the dictionaries of its training data",
        )


def check_sizes(config: StackConfig, parameters: Mapping[str, Tensor]) -> None:
    """Checks that a configuration does not have more or larger layers than the parameters, before building the model.

    :raises SettingError: a size is larger. The error names the first one.
    """
    for side in ("encoder", "decoder"):
        beginning = f"{side}.layers."
        layers = {name.removeprefix(beginning).partition(".")[0] for name in parameters if name.startswith(beginning)}
        widths = tuple(parameters[f"{beginning}0.fc1.weight"].shape) if f"{beginning}0.fc1.weight" in parameters else ()
        for setting, size in zip(("layers", "ffn_embed_dim", "embed_dim"), (len(layers), *widths), strict=False):
            if getattr(config, f"{side}_{setting}") > size:
                name = f"{side}_{setting}"
                raise SettingError.of_value(name, getattr(config, name), f"{size}, as the weights have")


def check_parameters(own: Mapping[str, Tensor], given: Mapping[str, Tensor], built: str) -> None:
    """Checks the names, types and shapes of parameters against a model's own. `built` describes the model.

    :raises SettingError: a parameter differs. The error names the first one.
    """
    if difference := weights_difference(own, given):
        raise SettingError("", f"a checkpoint of another kind than {built}: {difference}")
