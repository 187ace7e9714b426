"""The flags of our models: fairseq's own for Transformers, and the connection's."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import fields

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel

from rskip.connections import parse_connection
from rskip.fairseq_plugin.one_line_errors import UsageError
from rskip.transformer import TransformerConfig

# Flags of fairseq's transformer that these models have no part for: attribute -> (values that mean "off", what to do).
_OFF = (None, False, 0, 0.0, "")
UNSUPPORTED: dict[str, str] = {
    "encoder_normalize_before": "use --connection prenorm+ln",
    "decoder_normalize_before": "use --connection prenorm+ln",
    "no_decoder_final_norm": "leave it out: the connection decides the final normalisation",
    "encoder_embed_path": "leave it out",
    "decoder_embed_path": "leave it out",
    "encoder_layers_to_keep": "leave it out: set --encoder-layers",
    "decoder_layers_to_keep": "leave it out: set --decoder-layers",
    "encoder_xformers_att_config": "leave it out: attention is PyTorch's own",
    "decoder_xformers_att_config": "leave it out: attention is PyTorch's own",
    "adaptive_input": "leave it out",
    "adaptive_softmax_cutoff": "leave it out",
    "tie_adaptive_weights": "leave it out",
    "tie_adaptive_proj": "leave it out",
    "offload_activations": "use --checkpoint-activations",
    "no_cross_attention": "leave it out",
    "cross_self_attention": "leave it out",
    "quant_noise_pq": "leave it out",
    "quant_noise_scalar": "leave it out",
    "char_inputs": "leave it out",
    "base_layers": "leave it out",
    "export": "leave it out",
}


def add_flags(parser: ArgumentParser) -> None:
    """Adds the flags of fairseq's transformer, and `--connection` for both stacks or one."""
    TransformerModel.add_args(parser)
    help_text = "residual connection, such as 2rskip+ln"
    parser.add_argument("--connection", metavar="SPEC", help=f"{help_text} (default: the architecture's)")
    parser.add_argument("--encoder-connection", metavar="SPEC", help=f"{help_text}, of the encoder alone")
    parser.add_argument("--decoder-connection", metavar="SPEC", help=f"{help_text}, of the decoder alone")


def check_flags(args: Namespace) -> None:
    """Raises `UsageError` for a flag that these models don't support and for an invalid connection."""
    for name, advice in UNSUPPORTED.items():
        value = getattr(args, name, None)
        if value not in _OFF:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} (given: {value}) is not supported by --arch {args.arch}: {advice}")
    for name in ("decoder_input_dim", "decoder_output_dim"):
        value = getattr(args, name, None)
        if value not in (None, args.decoder_embed_dim):
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} {value} differs from --decoder-embed-dim {args.decoder_embed_dim}: leave it out")
    for name in ("connection", "encoder_connection", "decoder_connection"):
        spec = getattr(args, name, None)
        if spec is not None:
            try:
                parse_connection(spec)
            except ValueError as error:
                raise UsageError(f"--{name.replace('_', '-')} {spec}: {error}") from error


def config_from_args(args: Namespace, source: Dictionary, target: Dictionary) -> TransformerConfig:
    """The model that the flags describe, over these dictionaries. Raises `UsageError` where they contradict."""
    check_flags(args)
    if args.share_all_embeddings and source != target:
        raise UsageError(
            f"--share-all-embeddings needs one joint dictionary, but source and target have {len(source)} and "
            f"{len(target)} symbols of their own: run fairseq-preprocess with --joined-dictionary or leave the flag out"
        )
    values = {field.name: getattr(args, field.name) for field in fields(TransformerConfig) if hasattr(args, field.name)}
    values.update(
        source_vocabulary=len(source),
        target_vocabulary=len(target),
        padding_index=source.pad(),
        encoder_connection=getattr(args, "encoder_connection", None) or args.connection,
        decoder_connection=getattr(args, "decoder_connection", None) or args.connection,
    )
    try:
        return TransformerConfig(**values)
    except ValueError as error:
        raise UsageError(str(error)) from error
