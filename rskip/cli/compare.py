"""Compare connections in your model, on your data, in your time.

MODEL is gpt2 or llama (a new language model of this shape), timm:NAME, hf:FOLDER (a Hugging Face configuration of a
causal or masked language model, with new weights), or MODULE:FUNCTION, which returns your model. Each connection trains
for the same number of updates with each seed; the baseline also trains for the time of the slowest connection. To
resume, repeat the command; more seeds or rates, or other connections (name the earlier ones too), extend the
comparison. Exit status: 0 if it is complete, 143 or 130 if a signal stopped it, 2 for a mistake in the arguments.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rskip.cli._options import add_options
from rskip.comparison.options import ModelOptions, Options

EXAMPLES = """examples:
  rskip compare gpt2 --layers 4 --features 128 --data input.txt --connections mhc attnres residual_dual --minutes 60
  rskip compare timm:vit_tiny_patch16_224 --data photos --image-size 64 --minutes 60
  rskip compare hf:./my-model --data input.txt --html compare.html
  rskip compare my_package.my_module:build --data input.txt --loss my_package.my_module:loss

in several processes, which share each batch, or with the runs spread over a Ray cluster:
  torchrun --standalone --nproc-per-node 2 -m rskip compare gpt2 --data input.txt
  rskip compare gpt2 --data input.txt --ray"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="gpt2, llama, timm:NAME, hf:FOLDER or MODULE:FUNCTION")
    parser.add_argument(
        "--data", required=True, metavar="PATH",
        help="a text, a folder from `rskip prepare`, a folder of class folders with images or an .npz file, or "
        "MODULE:FUNCTION that returns batches, or a pair of training and held-out batches",
    )  # fmt: skip
    parser.add_argument(
        "--connections", nargs="+", metavar="SPEC", help="connections (default: six that are worth a try)"
    )
    parser.add_argument(
        "--baseline", metavar="SPEC",
        help="what the others are compared with (default: the model's own connection; for gpt2 and llama a pre-norm)",
    )  # fmt: skip
    parser.add_argument(
        "--rates", type=float, nargs="+", metavar="X",
        help="learning rates, one of which a pilot run chooses for each connection (default: two)",
    )  # fmt: skip
    add_options(parser, Options)
    add_options(parser.add_argument_group("model"), ModelOptions)
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="folder of the comparison (default: runs/compare/MODEL-DATA)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with the verdict and a chart")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
    parser.add_argument(
        "--tracker", choices=("tensorboard", "wandb"), help="also write the curves for TensorBoard or Weights & Biases"
    )
    parser.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS",
        help="do the runs in parallel with Ray, on this machine, or on the cluster with the head node HOST:PORT",
    )  # fmt: skip
    parser.add_argument("--only", metavar="RUN", help=argparse.SUPPRESS)  # one run, as a task of Ray
