"""Builds the Transformer of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.stock import from_old_stock
from rskip.checkpoint.stock_names import from_stock, stock_connection
from rskip.checkpoint.translation import (
    EMBEDDINGS,
    check_translates,
    check_vocabulary,
    is_stock,
    transformer_settings,
)
from rskip.connections import parse_connection
from rskip.files.torch_file import weights_difference
from rskip.formulas import UnknownFamily
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.config import DecoderConfig
from rskip.transformer.model import DecodingModel
from rskip.transformer.undrawn import undrawn

Model = TypeVar("Model", bound=DecodingModel)


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
        float32.
    :raises SettingError: the checkpoint has another task or kind of model, parts that `Transformer` lacks, or a
        connection that is not registered, or the sizes of the dictionaries differ.
    """
    shapes = checkpoint.shapes
    check_translates(checkpoint.config, shapes)
    settings = transformer_settings(checkpoint.config)
    stock = is_stock(settings)
    for side, size in (("source", source_vocabulary), ("target", target_vocabulary)):
        check_vocabulary(side, shapes[EMBEDDINGS[side]][0], size)
    connections = _stock_connections(settings) if stock else _own_connections(settings)
    check_connections(connections)
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
    return load_parameters(model, parameters, described, as_stored=as_stored)


def load_parameters(model: Model, parameters: Mapping[str, Tensor], described: str, *, as_stored: bool) -> Model:
    """The model with these parameters, in eval mode and without gradients.

    :param described: the model in words, for errors.
    :param as_stored: as for `build_transformer`.
    """
    check_parameters(model.state_dict(), parameters, described)
    model.load_state_dict(dict(parameters), assign=True)
    if model.config.output_is_embedding:  # assigning has untied them
        model.decoder.embed_tokens.weight = model.decoder.output_projection.weight
    if not as_stored:
        model._apply(_own_float32)
    return model.requires_grad_(False).eval()


def _own_float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32, copy=True) if tensor.is_floating_point() else tensor.clone()


def _own_connections(settings: Mapping[str, Any]) -> dict[str, Any]:
    sides = ("encoder_connection", "decoder_connection")
    given = {side: settings.get(side) or settings.get("connection") for side in sides}
    return {side: connection for side, connection in given.items() if connection}


def _stock_connections(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{side}_connection": stock_connection(normalize_before=bool(settings.get(f"{side}_normalize_before")))
        for side in ("encoder", "decoder")
    }


def check_connections(connections: Mapping[str, str]) -> None:
    """Checks the connections of a checkpoint, by the name of their setting."""
    for name, spec in connections.items():
        try:
            parse_connection(spec)
        except UnknownFamily as error:
            advice = "import the module that registers it (--user-dir), then load the model"
            raise SettingError(name, error.problem, expected="a registered connection", advice=advice) from None
        except SettingError as error:
            raise error.named(name) from None


def check_sizes(config: DecoderConfig, parameters: Mapping[str, Tensor]) -> None:
    """Checks before building a model that it has no more or larger layers than the parameters."""
    for side in config.stacks:
        beginning = f"{side}.layers."
        layers = {name.removeprefix(beginning).partition(".")[0] for name in parameters if name.startswith(beginning)}
        widths = tuple(parameters[f"{beginning}0.fc1.weight"].shape) if f"{beginning}0.fc1.weight" in parameters else ()
        for setting, size in zip(("layers", "ffn_embed_dim", "embed_dim"), (len(layers), *widths), strict=False):
            if getattr(config, f"{side}_{setting}") > size:
                name = f"{side}_{setting}"
                raise SettingError.of_value(name, getattr(config, name), f"{size}, as the weights have")


def check_parameters(own: Mapping[str, Tensor], given: Mapping[str, Tensor], built: str) -> None:
    """Checks the names, types and shapes of parameters against a model's own. `built` describes the model."""
    if difference := weights_difference(own, given):
        raise SettingError("", f"a checkpoint of another kind than {built}: {difference}")
