"""Initialise a connection that needs a profiling pass (admin), and write the checkpoint to start fairseq-train from.

The pass is a forward pass of the first training batch, on the CPU. Give this command the same flags as the
fairseq-train command that follows, and add --finetune-from-model FILE to that command.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from rskip.cli._model import check_replaceable
from rskip.tasks.process import executable

EXAMPLES = """example:
  rskip initialise --output start.pt data-bin/multi30k-en-de --user-dir rskip --arch transformer_rskip_ln_tiny \\
      --connection admin --max-tokens 2048 --dropout 0.2 --seed 1
  fairseq-train data-bin/multi30k-en-de --user-dir rskip --arch transformer_rskip_ln_tiny \\
      --connection admin --max-tokens 2048 --dropout 0.2 --seed 1 --finetune-from-model start.pt ..."""


ENDS_WITH_FAIRSEQS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="checkpoint to write, a .pt file; goes before DATA"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists; goes before DATA")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="DATA FLAGS", help="arguments of fairseq-train, DATA first"
    )


def run(args: argparse.Namespace) -> None:
    """Writes the checkpoint and prints the weights ω that the pass found."""
    check_replaceable(args.output, replace=args.force, suffix=".pt")  # fairseq-train reads it
    executable("fairseq-train")  # FileNotFoundError, which says how it is installed
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    from rskip.fairseq_plugin.initialise import initialise  # loads PyTorch and fairseq

    for stack, weights in initialise(args.words, args.output).items():
        print(f"{stack}: ω {' '.join(f'{weight:.4f}' for weight in weights) or 'none: its connection has no ω'}")
    print(f"wrote {args.output}: give fairseq-train the same flags and --finetune-from-model {args.output}")
