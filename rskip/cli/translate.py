"""Translate text: files, standard input, or sentences typed at the terminal.

The output has one line per line of input, including blank lines. With --output FILE, the command writes to
FILE.partial, which it renames to FILE when complete. --resume continues an interrupted translation. Under torchrun, the
processes share the input files. Lines that arrive slowly through a pipe are translated as they arrive.
"""

from __future__ import annotations

import argparse
from dataclasses import fields

from rskip.cli._model_arguments import add_model_arguments
from rskip.cli._options import add_options
from rskip.generation.options import SearchOptions
from rskip.kernel_forms import PRECISIONS
from rskip.translation.options import DEFAULT_OPTIONS, BatchSettings, CpuSettings

EXAMPLES = """examples:
  rskip translate --model checkpoints/multi30k_en_de/2rskip_ln test.en --output test.de
  echo "A dog runs." | rskip translate --model checkpoints/multi30k_en_de/2rskip_ln --beam 8 --nbest 3
  rskip translate --model MODEL --interactive
  torchrun --nproc_per_node 4 -m rskip translate --model MODEL --device cuda big.en --output big.de"""

NOT_FLAGS = ("token_scores", "attention")  # fields of SearchOptions that --format json sets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="*", metavar="FILE", help="text file in UTF-8; -: standard input (default)")
    parser.add_argument(
        "--model",
        required=True,
        metavar="MODEL",
        help="model folder, checkpoint, a name from `rskip zoo list`, or hf:OWNER/NAME of the Hugging Face Hub; "
        "several joined by : are an ensemble",
    )
    parser.add_argument("--interactive", action="store_true", help="ask for sentences at the terminal")

    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", metavar="PATH", help="file, or folder for one file per FILE (default: standard output)"
    )
    output.add_argument(
        "--resume",
        action="store_true",
        help="resume an interrupted translation with the same input and settings; complete outputs stay as they are, "
        "unchecked",
    )
    output.add_argument(
        "--scores",
        action="store_true",
        help="print the score and a tab before each translation: with the default --lenpen the mean log-probability "
        "per token; --format json and --nbest above 1 print scores in any case",
    )
    output.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="output format; json: one object per line, with tokens, their scores and alignment (default: %(default)s)",
    )
    output.add_argument(
        "--progress", action="store_true", help="show progress on stderr even if stderr is not a terminal"
    )
    output.add_argument("--quiet", action="store_true", help="no progress, notes or summary on stderr")

    model = parser.add_argument_group("model")
    add_model_arguments(model)
    model.add_argument(
        "--precision", choices=PRECISIONS, help="number format of the model (default: float32, or that of ONNX graphs)"
    )
    model.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
    add_options(model, CpuSettings)

    search = parser.add_argument_group("search")
    searched = [field.name for field in fields(SearchOptions) if field.name not in NOT_FLAGS]
    add_options(search, SearchOptions, only=searched, defaults=DEFAULT_OPTIONS)
    add_options(parser.add_argument_group("batches"), BatchSettings)
