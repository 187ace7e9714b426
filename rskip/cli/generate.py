"""Generate text with a language model.

    rskip generate --model runs/shakespeare_char/2rskip_ln/1 --prompt ROMEO: --length 300
    rskip generate --model runs/shakespeare --temperature 0.8 --top-k 20 --seed 2
    rskip generate --model runs/shakespeare --score speech.txt
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rskip.cli._model import model_path
from rskip.cli._options import add_options, given_options, refuse_flags, refuse_options
from rskip.files.names import line_name
from rskip.language_modeling.generator import GenerationOptions, TextGenerator
from rskip.settings.text import decoded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", required=True, metavar="MODEL",
        help="name from `rskip zoo list --task language_modeling`, the folder of a model or run, or a checkpoint of "
        "fairseq",
    )  # fmt: skip
    parser.add_argument("--prompt", metavar="TEXT", help="beginning of the text (default: a line end)")
    parser.add_argument(
        "--score", type=Path, metavar="FILE", help="instead of generating, print the loss of the text in a file"
    )
    parser.add_argument(
        "--tokens", metavar="FOLDER",
        help="for a checkpoint of fairseq: the folder from `rskip prepare` with its training data",
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cpu)")
    add_options(parser.add_argument_group("generation"), GenerationOptions)


def run(args: argparse.Namespace) -> None:
    options = given_options(args, GenerationOptions)
    if args.score is not None:
        refuse_flags({"--prompt": args.prompt}, "can't be combined with --score, which generates nothing")
        refuse_options(args, GenerationOptions, "can't be combined with --score, which generates nothing")
    GenerationOptions(**options)  # checks them before the model is loaded
    path = model_path(args.model, task="language_modeling")
    model = TextGenerator.from_pretrained(path, tokens=args.tokens, device=args.device)
    if args.score is not None:
        text = decoded(args.score.read_bytes(), source=line_name(args.score))
        found = model.score(text.replace("\r\n", "\n"))  # as in the training text
        print(
            f"{found.nats_per_token:.4f} nats per {model.tokens.unit} (perplexity {found.perplexity:.3f}), "
            f"{found.bits_per_character:.4f} bits per character; {found.characters:,} characters"
        )
        return
    parts = model.stream("\n" if args.prompt is None else args.prompt, **options)  # checks the prompt
    sys.stdout.write("" if args.prompt in (None, "\n") else args.prompt)
    for part in parts:
        sys.stdout.write(part)
        sys.stdout.flush()
    sys.stdout.write("\n")
