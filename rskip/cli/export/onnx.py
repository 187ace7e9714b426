"""Write a folder of ONNX graphs for rskip translate --model, for one sentence at a time.

The folder holds encoder.onnx and step.onnx (standard operators, any connection), dictionaries, the text pipeline, and
onnx.json, which describes the graphs for a runtime. The command compares the logits with those of the model. It needs
the extra onnx.

    rskip export onnx --model checkpoints/multi30k_en_de/2rskip_ln --output onnx-model
"""

from __future__ import annotations

import argparse

from rskip.cli._model import output_folder
from rskip.cli._model_arguments import add_model_arguments
from rskip.cli.export._model import add_export_arguments, load

CONTENTS = ("*.onnx", "*.onnx.data", "onnx.json", "dict.*.txt", "text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quantization", choices=("int8",), help="number format of linear layers (default: float32)")
    add_export_arguments(parser)
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Writes graphs, dictionaries and text pipeline."""
    from rskip.translation.onnx_model import write_onnx  # loads PyTorch, which --help doesn't need

    with output_folder(args.output, replace=args.force, contents=CONTENTS) as folder:
        translator, model = load(args)
        write_onnx(
            model,
            folder,
            translator.tokenizer,
            precision=args.quantization or "float32",
        )
    print(f"wrote {args.output}: translate with rskip translate --model {args.output}")
