"""Write a .pt file for fairseq-generate --user-dir rskip, or with --vanilla for fairseq without rskip.

Tensors are stored unchanged. With --vanilla they are float32 and have the names of fairseq's own `transformer`. Of a
Hugging Face folder, the command also writes dict.*.txt and the text pipeline (text/) next to the file.

    rskip export fairseq --model checkpoints/multi30k_en_de/2rskip_ln --output model.pt
    rskip export fairseq --model checkpoints/multi30k_en_de/1xskip_ln --vanilla --output vanilla.pt
"""

from __future__ import annotations

import argparse

from rskip import checkpoint
from rskip.checkpoint.hugging_face import TRANSLATION_MODELS
from rskip.cli._model import check_replaceable
from rskip.cli.export._model import add_export_arguments, check_one_pair, find_one
from rskip.settings.errors import errors_about
from rskip.text.finding import TokenizerSettings
from rskip.translation.model_files import StoredWeights, open_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vanilla",
        action="store_true",
        help="write fairseq's own `transformer`; the model's connection must fold into its",
    )
    add_export_arguments(parser, output="FILE.pt")


def run(args: argparse.Namespace) -> None:
    """Writes the checkpoint in fairseq's format, as rskip's architecture or as fairseq's own."""
    from rskip.checkpoint.stock import stock_checkpoint  # loads PyTorch, which --help doesn't need

    check_replaceable(args.output, replace=args.force, suffix=".pt")
    path = find_one(args.model)
    stored = open_model(path)
    assert isinstance(stored, StoredWeights)
    exported = stored.checkpoint
    if args.vanilla or path.is_dir():
        check_one_pair(path, stored)
    if not args.vanilla and exported.config["arch"] in TRANSLATION_MODELS:
        problem = f"{path} is a Hugging Face model ({exported.config['arch']}), an architecture that rskip lacks"
        raise ValueError(f"{problem}: add --vanilla for fairseq's own, or use `rskip translate`")
    if args.vanilla:
        embeddings = (exported.model.get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
        source, target = (0 if each is None else sum(each.shape[:1]) for each in embeddings)
        with errors_about(path):
            exported = stock_checkpoint(
                checkpoint.build_transformer(exported, source_vocabulary=source, target_vocabulary=target),
                source_language=exported.config["source_lang"],
                target_language=exported.config["target_lang"],
            )
    beside = ""
    if path.is_dir():
        tokenizer, folder = stored.tokenizer(TokenizerSettings()), args.output.parent
        for name in (f"dict.{tokenizer.source_language}.txt", f"dict.{tokenizer.target_language}.txt", "text"):
            check_replaceable(folder / name, replace=args.force)
        tokenizer.save(folder)
        beside = ", and dict.*.txt and text/ next to it"
    checkpoint.write_checkpoint(args.output, exported)
    arch = exported.config["arch"]
    user_dir = " --user-dir rskip" if "connection" in exported.config["model"] else ""
    print(f"wrote {args.output} ({arch}){beside}: translate with fairseq-generate DATA --path {args.output}{user_dir}")
