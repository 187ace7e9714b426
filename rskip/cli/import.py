"""Convert a checkpoint that fairseq trained, or a Hugging Face folder, to a model folder of rskip."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

from rskip import checkpoint
from rskip.checkpoint.fairseq_languages import of_pair
from rskip.checkpoint.hugging_face import folder_at, hub_folder, is_hub_name, read_hugging_face
from rskip.cli._model import TEXT_FILES, model_of_the_hub, output_folder, saying_what_is_assumed
from rskip.cli._model_arguments import add_model_arguments, model_settings
from rskip.settings.check import to_plain
from rskip.settings.user_dir import suggested_command
from rskip.text.finding import find_dictionary
from rskip.translation import Translator

COMMANDS = ("fairseq", "huggingface")
EXAMPLES = """example:
  rskip import fairseq --checkpoint checkpoint_best.pt --dictionaries data-bin --text bpe.codes --output my-model
  rskip translate --model my-model"""
HUGGING_FACE_EXAMPLES = """example:
  rskip import huggingface --model opus-mt-en-de --dtype float16 --output my-model
  rskip translate --model my-model"""
_CONTENTS = ("config.json", "model.safetensors", "dict.txt", "dict.*.txt", *TEXT_FILES)


def add_fairseq_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="FILE.pt", help="checkpoint to convert")
    add_model_arguments(parser, dictionaries_required=True)
    _add_output(parser)


def run_fairseq(args: argparse.Namespace) -> None:
    """Convert fairseq's .pt file, trained with or without rskip, to a model folder.

    The folder holds config.json, model.safetensors, dict.*.txt and text/. Tensors are stored unchanged. The command
    also builds the model, and fails if the model can't translate.
    """
    with output_folder(args.output, replace=args.force, contents=_CONTENTS) as folder:
        with saying_what_is_assumed():
            translator = Translator.from_pretrained(args.checkpoint, **model_settings(args))
        tokenizer = translator.tokenizer
        languages = {"source_lang": translator.source_language, "target_lang": translator.target_language}
        stored = of_pair(checkpoint.read_checkpoint(args.checkpoint), *languages.values())
        if (tokens := tokenizer.languages) is not None:
            tokenizer.save(folder)
            stored.config["languages"] = to_plain(replace(tokens, added=()))  # which the saved dictionaries have
        else:
            for key, language in languages.items():
                dictionary = find_dictionary((language, stored.config[key]), [args.dictionaries])
                shutil.copyfile(dictionary, folder / f"dict.{language}.txt")
            tokenizer.text.save(folder / "text")
        stored.config.update(languages)
        checkpoint.write_model(folder, stored)
    _tell(args.output)


def add_huggingface_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = HUGGING_FACE_EXAMPLES
    what = "folder with its config.json, or hf:OWNER/NAME of the Hugging Face Hub"
    parser.add_argument("--model", type=Path, required=True, metavar="MODEL", help=what)
    for side in ("source", "target"):
        what = f"{side} language (default: the model's; for a multilingual model, choose it in `rskip translate`)"
        parser.add_argument(f"--{side}-lang", metavar="LANG", help=what)
    what = "type of the written weights (default: unchanged)"
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help=what)
    _add_output(parser)


def run_huggingface(args: argparse.Namespace) -> None:
    """Convert the folder of a Hugging Face translation model to a model folder.

    The model may be one of Marian, M2M-100, NLLB, mBART, or FSMT. The command also builds the model, and fails if the
    model can't translate. It runs no code from the folder.
    """
    import torch  # takes a second, and --help doesn't need it

    with output_folder(args.output, replace=args.force, contents=_CONTENTS) as folder:
        model = read_hugging_face(_hugging_face_folder(args.model), languages=(args.source_lang, args.target_lang))
        tokenizer = model.any_tokenizer
        sizes = {"source_vocabulary": len(tokenizer.source), "target_vocabulary": len(tokenizer.target)}
        checkpoint.build_transformer(model.checkpoint, **sizes, as_stored=True)
        tokenizer.save(folder)
        dtype = None if args.dtype is None else getattr(torch, args.dtype)
        checkpoint.write_model(folder, model.checkpoint, dtype=dtype)
    _tell(args.output)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument("--force", action="store_true", help="replace the files of an earlier import")


def _tell(output: Path) -> None:
    print(f"wrote {output}: translate with {suggested_command('rskip', 'translate', '--model', str(output))}")


def _hugging_face_folder(model: Path) -> Path:
    """The folder of a model, which is given as itself, as its weights file or by its name on the Hub."""
    if is_hub_name(model):
        return hub_folder(model)
    if (folder := folder_at(model)) is None:
        problem = f"{model} has no config.json of transformers" if model.exists() else f"no model {model}"
        advice = f"expected the folder of a Hugging Face model{model_of_the_hub(model.as_posix())}"
        raise FileNotFoundError(f"{problem}: {advice}")
    return folder
