"""The flags of our models: those of fairseq's Transformers, and those of connections."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel

from fairseq_compat.one_line_errors import UsageError
from rskip.captioning.config import CaptioningConfig
from rskip.checkpoint.fairseq_settings import GROUPS
from rskip.connections import check_connection, find_family, parse_connection
from rskip.fairseq_plugin.usage_errors import flag_of, usage_errors
from rskip.transformer import TransformerConfig
from rskip.transformer.config import ACTIVATIONS, StackConfig

Config = TypeVar("Config", bound=StackConfig)

# Advice for flags of fairseq's transformer that these models do not support.
_INSTEAD = {
    "encoder_normalize_before": "use --connection prenorm+ln",
    "decoder_normalize_before": "use --connection prenorm+ln",
    "no_decoder_final_norm": "leave it out; the connection determines the final normalisation",
    "encoder_layers_to_keep": "set --encoder-layers",
    "decoder_layers_to_keep": "set --decoder-layers",
    "offload_activations": "use --checkpoint-activations",
    "relu_dropout": "use --activation-dropout",
    "share_all_embeddings": "use --share-decoder-input-output-embed",
}

PROBE_EVERY = 25  # updates
_ALIGNED = "label_smoothed_cross_entropy_with_alignment"

# Minimum values for the fields that data determine, so that flags can be checked before data are read.
OF_DATA: dict[type[StackConfig], dict[str, Any]] = {
    TransformerConfig: {"source_vocabulary": 1, "target_vocabulary": 1, "padding_index": 0},
    CaptioningConfig: {
        "vocabulary": 1, "padding_index": 0, "feature_dim": 1, "grid_positions": False, "features": {},
    },
}  # fmt: skip


def add_flags(parser: ArgumentParser) -> None:
    """Adds the flags of fairseq's transformer, with all our activations, and `--connection` for both stacks or one."""
    TransformerModel.add_args(parser)
    next(each for each in parser._actions if each.dest == "activation_fn").choices = ACTIVATIONS
    help_text = "residual connection, such as 2rskip+ln"
    parser.add_argument("--connection", metavar="SPEC", help=f"{help_text} (default: the architecture's)")
    parser.add_argument("--encoder-connection", metavar="SPEC", help=f"{help_text}, only for the encoder")
    parser.add_argument("--decoder-connection", metavar="SPEC", help=f"{help_text}, only for the decoder")
    add_training_flags(parser)


def add_translation_flags(parser: ArgumentParser) -> None:
    """Adds the flags that only translation models have: those of imported Marian models."""
    parser.add_argument(
        "--output-bias", action="store_true", default=None, help="the output projection has a bias (default: no)"
    )
    parser.add_argument(
        "--start", choices=("end", "begin"), help="token that targets start with: </s>, or <s> (default: end)"
    )


def add_training_flags(parser: ArgumentParser) -> None:
    """Adds the flags that models without an encoder have too."""
    parser.add_argument(
        "--value-residual",
        choices=("none", "fixed", "learned"),
        help="mix the first layer's values into each later self-attention: half of both, or with learned factors "
        "(default: none)",
    )
    parser.add_argument(
        "--probe-file",
        metavar="FILE",
        help="write RMS of x, F(x) and y, norm of the loss gradient, and gates of every residual block to FILE",
    )
    parser.add_argument(
        "--compile-layers", action="store_true", help="compile the layers with torch.compile (default: no)"
    )
    parser.add_argument(
        "--probe-every", type=int, metavar="N", help=f"probe the first and every N-th update (default: {PROBE_EVERY})"
    )


@cache
def fairseq_flags() -> frozenset[str]:
    """The attributes of the flags of fairseq's transformer."""
    parser = ArgumentParser()
    TransformerModel.add_args(parser)
    return frozenset(vars(parser.parse_args([])))


def unsupported_flags(kind: type[StackConfig] = TransformerConfig) -> tuple[str, ...]:
    """The attributes of fairseq's transformer flags that these models refuse because their configuration lacks them."""
    return tuple(sorted(fairseq_flags() - {field.name for field in fields(kind)}))


def check_flags(args: Namespace, kind: type[StackConfig] = TransformerConfig) -> None:
    """Raises `UsageError` for an unsupported flag, an invalid connection, or sizes that do not fit together."""
    for name in unsupported_flags(kind):
        value = getattr(args, name, None)
        if value and not (name == "decoder_output_dim" and value == args.decoder_embed_dim):
            given = flag_of(name) if value is True else f"{flag_of(name)} {value}"
            advice = _INSTEAD.get(name, "leave it out")
            raise UsageError(f"{given} is not supported by rskip's architectures: {advice}")
    if getattr(args, "criterion", None) == _ALIGNED:
        raise UsageError(f"--criterion {_ALIGNED} needs attention while training, which rskip's models don't give")
    for group, settings in GROUPS.items():
        if getattr(args, group, None) is not None:
            advice = f"give flat settings such as {group}_{next(iter(settings))}"
            raise UsageError(f"rskip's architectures don't read the group {group}: {advice}")
    for name in ("connection", "encoder_connection", "decoder_connection"):
        spec = getattr(args, name, None)
        if spec is not None:
            with usage_errors(named={"connection": name}):
                check_connection(spec, -1)
    config = _config(args, kind, OF_DATA[kind])
    check_probe(args, config.encoder_connection, config.decoder_connection)


def check_probe(args: Namespace, *connections: str) -> None:
    """Raises `UsageError` for flags of a probe that contradict each other, or connections that can't be probed."""
    every, given = getattr(args, "probe_every", None), getattr(args, "probe_file", None) is not None
    if every is not None and (every < 1 or not given):
        raise UsageError(f"--probe-every is {every}: expected 1 or more, together with --probe-file")
    flags = ["--compile-layers"] * bool(getattr(args, "compile_layers", False))
    found = flags + [spec for spec in connections if find_family(parse_connection(spec).family).passes != "x"]
    if given and found:
        needs = "plain layers, and blocks with one x and F(x)"
        raise UsageError(f"--probe-file doesn't work with {found[0]}: it needs {needs}")


def take_probe(args: Namespace) -> tuple[str | None, int]:
    """Removes the file and interval of a probe from `args`, and returns them."""
    file, every = (_taken(args, name) for name in ("probe_file", "probe_every"))
    return file, every or PROBE_EVERY


def take_compile_layers(args: Namespace) -> bool:
    """Removes the flag for compiling layers from `args`, because checkpoints store them, and returns it."""
    return bool(_taken(args, "compile_layers"))


def _taken(args: Any, name: str) -> Any:
    """Removes a setting and returns it; None if there is none. fairseq-hydra-train gives an omegaconf.DictConfig."""
    from omegaconf import OmegaConf, open_dict

    if not OmegaConf.is_config(args):
        return vars(args).pop(name, None)
    with open_dict(args):
        return args.pop(name, None)


def config_from_args(args: Namespace, source: Dictionary, target: Dictionary) -> TransformerConfig:
    """The configuration of a model from flags and dictionaries. Raises `UsageError` if they contradict each other."""
    check_flags(args)
    if args.share_all_embeddings and source != target:
        raise UsageError(
            f"--share-all-embeddings needs one joint dictionary, but source and target have {len(source)} and "
            f"{len(target)} symbols: run fairseq-preprocess with --joined-dictionary, or leave the flag out"
        )
    dictionaries = {
        "source_vocabulary": len(source),
        "target_vocabulary": len(target),
        "padding_index": source.pad(),
    }
    return _config(args, TransformerConfig, dictionaries)


def captioning_config_from_args(args: Namespace, of_data: Mapping[str, Any]) -> CaptioningConfig:
    """The configuration of a captioning model from the flags. Raises `UsageError` if they contradict each other."""
    check_flags(args, CaptioningConfig)
    return _config(args, CaptioningConfig, of_data)


def _config(args: Namespace, kind: type[Config], of_data: Mapping[str, Any]) -> Config:
    names = {field.name for field in fields(kind)} - of_data.keys()
    values: dict[str, Any] = {name: getattr(args, name) for name in names if hasattr(args, name)}
    for side in ("encoder_connection", "decoder_connection"):
        values[side] = values.get(side) or args.connection
    pairs = {f"decoder_{size}": f"encoder_{size}" for size in ("embed_dim", "ffn_embed_dim")}
    same = {own: default for own, default in pairs.items() if values.get(own) == values.get(default)}
    with usage_errors(named=same):  # the decoder's sizes are by default the encoder's
        return kind(**values | dict(of_data))
