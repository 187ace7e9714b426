"""Convert a checkpoint that fairseq trained to a model folder of rskip."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

from rskip.cli._model import add_model_arguments, model_settings, saying_what_is_assumed

EXAMPLES = """example:
  rskip import fairseq --checkpoint checkpoint_best.pt --dictionaries data-bin --text bpe.codes --output my-model
  rskip translate --model my-model"""
HELP = """Convert fairseq's .pt file, trained with or without rskip, to a model folder.

The folder holds config.json, model.safetensors, dict.*.txt and text/. Tensors are stored unchanged. The command also
builds the model, so that a model that can't translate is an error here."""
CONTENTS = ("config.json", "model.safetensors", "dict.*.txt", "text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    fairseq = formats.add_parser(
        "fairseq",
        help=HELP.partition("\n")[0],
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    fairseq.add_argument("--checkpoint", type=Path, required=True, metavar="FILE.pt", help="checkpoint to convert")
    add_model_arguments(fairseq, dictionaries_required=True)
    fairseq.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    fairseq.add_argument("--force", action="store_true", help="replace the files of an earlier import")


def run(args: argparse.Namespace) -> None:
    """Writes the folder and prints its path."""
    from rskip.checkpoint import read_checkpoint, write_model
    from rskip.checkpoint.fairseq_languages import of_pair
    from rskip.cli._model import output_folder
    from rskip.settings.check import to_plain
    from rskip.text.finding import find_dictionary
    from rskip.translation import Translator

    with output_folder(args.output, replace=args.force, contents=CONTENTS) as folder:
        with saying_what_is_assumed():
            translator = Translator.from_pretrained(args.checkpoint, **model_settings(args))
        languages = {"source_lang": translator.source_language, "target_lang": translator.target_language}
        checkpoint = of_pair(read_checkpoint(args.checkpoint), *languages.values())
        if (tokens := translator.tokenizer.languages) is not None:
            translator.tokenizer.save(folder)
            checkpoint.config["languages"] = to_plain(replace(tokens, added=()))  # which the saved dictionaries have
        else:
            for key, language in languages.items():
                names = (language, checkpoint.config[key])
                dictionary = find_dictionary(names, [args.dictionaries])
                shutil.copyfile(dictionary, folder / f"dict.{language}.txt")
            translator.tokenizer.text.save(folder / "text")
        checkpoint.config.update(languages)
        write_model(folder, checkpoint)
    print(f"wrote {args.output}: translate with rskip translate --model {args.output}")
