"""Write a folder that ctranslate2.Translator opens, with the text pipeline.

CTranslate2 computes λxskip+ln, 1xskip+ln:branch_scale=β, prenorm+ln, deepnorm, layerscale+ln and askip+ln (learned,
depth), some of them after folding. Other connections are an error. The command needs the extra ct2.

    rskip export ct2 --model checkpoints/multi30k_en_de/1xskip_ln --output ct2-model --quantization int8
"""

from __future__ import annotations

import argparse

from rskip.cli._model import output_folder
from rskip.cli._model_arguments import add_model_arguments
from rskip.cli.export._model import add_export_arguments, load

# ctranslate2.specs.model_spec.ACCEPTED_MODEL_TYPES, without importing it for the sake of --help
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")
CONTENTS = ("model.bin", "config.json", "*_vocabulary.json", "text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quantization", choices=QUANTIZATIONS, help="number format of the weights (default: float32)")
    add_export_arguments(parser)
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Folds and converts the model, and writes the text pipeline next to it."""
    from rskip.translation.ctranslate2_model import write_ctranslate2  # loads PyTorch, which --help doesn't need

    with output_folder(args.output, replace=args.force, contents=CONTENTS) as folder:
        translator, model = load(args)
        write_ctranslate2(
            model,
            folder,
            source=translator.tokenizer.source,
            target=translator.tokenizer.target,
            quantization=args.quantization,
        )
        translator.tokenizer.text.save(folder / "text")
    print(f"wrote {args.output}: open it with ctranslate2.Translator({str(args.output)!r})")
