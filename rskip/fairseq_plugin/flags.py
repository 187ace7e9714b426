"""The flags of our models: fairseq's own for Transformers, and the connection's."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import fields
from functools import cache
from typing import Any

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel

from rskip.connections import build_connection
from rskip.fairseq_plugin.one_line_errors import UsageError
from rskip.settings.errors import SettingError
from rskip.transformer import TransformerConfig

# What to do instead of a flag of fairseq's transformer that these models have no part for.
_INSTEAD = {
    "encoder_normalize_before": "use --connection prenorm+ln",
    "decoder_normalize_before": "use --connection prenorm+ln",
    "no_decoder_final_norm": "leave it out, the connection decides the final normalisation",
    "encoder_layers_to_keep": "set --encoder-layers",
    "decoder_layers_to_keep": "set --decoder-layers",
    "offload_activations": "use --checkpoint-activations",
    "relu_dropout": "use --activation-dropout",
}


def flag_of(name: str) -> str:
    """The flag that sets this attribute."""
    return "--" + name.replace("_", "-")


def add_flags(parser: ArgumentParser) -> None:
    """Adds the flags of fairseq's transformer, and `--connection` for both stacks or one."""
    TransformerModel.add_args(parser)
    help_text = "residual connection, such as 2rskip+ln"
    parser.add_argument("--connection", metavar="SPEC", help=f"{help_text} (default: the architecture's)")
    parser.add_argument("--encoder-connection", metavar="SPEC", help=f"{help_text}, of the encoder alone")
    parser.add_argument("--decoder-connection", metavar="SPEC", help=f"{help_text}, of the decoder alone")


@cache
def unsupported_flags() -> tuple[str, ...]:
    """The attributes of fairseq's transformer flags that these models refuse: all that a `TransformerConfig` lacks."""
    parser = ArgumentParser()
    TransformerModel.add_args(parser)
    return tuple(sorted(vars(parser.parse_args([])).keys() - {field.name for field in fields(TransformerConfig)}))


def check_flags(args: Namespace) -> None:
    """Raises `UsageError` for a flag that these models don't support, an invalid connection, sizes that don't fit."""
    for name in unsupported_flags():
        value = getattr(args, name, None)
        if value and not (name == "decoder_output_dim" and value == args.decoder_embed_dim):
            given = flag_of(name) if value is True else f"{flag_of(name)} {value}"
            advice = _INSTEAD.get(name, "leave it out")
            raise UsageError(f"{given} is not supported by rskip's architectures: {advice}")
    for name in ("connection", "encoder_connection", "decoder_connection"):
        spec = getattr(args, name, None)
        if spec is not None:
            try:
                build_connection(spec, 2)
            except SettingError as error:
                raise UsageError(error.sentence(flag_of(name))) from error
    _config(args, source_vocabulary=1, target_vocabulary=1, padding_index=0)


def config_from_args(args: Namespace, source: Dictionary, target: Dictionary) -> TransformerConfig:
    """The model that the flags describe, over these dictionaries. Raises `UsageError` where they contradict."""
    check_flags(args)
    if args.share_all_embeddings and source != target:
        raise UsageError(
            f"--share-all-embeddings needs one joint dictionary, but source and target have {len(source)} and "
            f"{len(target)} symbols of their own: run fairseq-preprocess with --joined-dictionary or leave the flag out"
        )
    return _config(
        args, source_vocabulary=len(source), target_vocabulary=len(target), padding_index=source.pad()
    )


def _config(args: Namespace, **dictionaries: int) -> TransformerConfig:
    names = {field.name for field in fields(TransformerConfig)} - dictionaries.keys()
    values: dict[str, Any] = {name: getattr(args, name) for name in names if hasattr(args, name)}
    for side in ("encoder_connection", "decoder_connection"):
        values[side] = values.get(side) or args.connection
    try:
        return TransformerConfig(**values | dictionaries)
    except SettingError as error:
        raise UsageError(error.sentence(flag_of(error.name))) from error
