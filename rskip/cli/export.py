"""Write a model for other programs: ONNX graphs, CTranslate2, or fairseq with its stock Transformer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.cli._model import add_model_arguments, check_replaceable, model_path, model_settings

if TYPE_CHECKING:
    from rskip.checkpoint import Checkpoint
    from rskip.transformer import Transformer
    from rskip.translation import Translator

EXAMPLES = """examples:
  rskip export onnx --model checkpoints/multi30k_en_de_2rskip_ln --output onnx-model
  rskip export ct2 --model checkpoints/multi30k_en_de_1xskip_ln --output ct2-model --quantization int8
  rskip export fairseq --model checkpoints/multi30k_en_de_2rskip_ln --output model.pt
  rskip export fairseq --model checkpoints/multi30k_en_de_1xskip_ln --stock --output stock.pt"""

ONNX_HELP = """Write a folder of ONNX graphs, which rskip translate --model takes, for one sentence at a time.

encoder.onnx and step.onnx (standard operators, any connection), dictionaries, text pipeline, and onnx.json, which says
what a runtime must know. Logits are compared with the model's. Needs onnx, onnxscript and onnxruntime:
pip install 'rskip[onnx]'."""
CT2_HELP = """Write a folder that ctranslate2.Translator opens, the text pipeline in it.

λxskip+ln, 1xskip+ln:branch_scale=β, prenorm+ln, deepnorm, layerscale+ln and askip+ln (learned, depth) are, or
fold into, what CTranslate2 computes; other connections are refused. Needs CTranslate2: pip install 'rskip[ct2]'."""
FAIRSEQ_HELP = """Write a .pt file for fairseq-generate --user-dir rskip, or with --stock for fairseq alone.

Tensors are stored as they are; with --stock in float32, under the names of fairseq's `transformer`."""

# ctranslate2.specs.model_spec.ACCEPTED_MODEL_TYPES, without importing it for the sake of --help
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")
ONNX_CONTENTS = ("*.onnx", "*.onnx.data", "onnx.json", "dict.*.txt", "text")
CT2_CONTENTS = ("model.bin", "config.json", "*_vocabulary.json", "text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)

    onnx = _add_format(formats, "onnx", ONNX_HELP)
    onnx.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    onnx.add_argument("--quantization", choices=("int8",), help="of the linear maps (default: float32)")
    add_model_arguments(onnx)

    ct2 = _add_format(formats, "ct2", CT2_HELP)
    ct2.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    ct2.add_argument("--quantization", choices=QUANTIZATIONS, help="of the weights (default: float32)")
    add_model_arguments(ct2)

    fairseq = _add_format(formats, "fairseq", FAIRSEQ_HELP)
    fairseq.add_argument("--output", type=Path, required=True, metavar="FILE.pt")
    fairseq.add_argument(
        "--stock", action="store_true", help="fairseq's own `transformer`, for connections that are or fold into its"
    )
    for each in (onnx, ct2, fairseq):
        each.add_argument(
            "--model", required=True, metavar="MODEL", help="its folder or checkpoint, or a name of `rskip zoo list`"
        )
        each.add_argument("--force", action="store_true", help="replace what an earlier export wrote there")


def run(args: argparse.Namespace) -> None:
    """Writes the model and says where."""
    args.model = model_path(args.model, task="translation")
    {"onnx": export_onnx, "ct2": export_ct2, "fairseq": export_fairseq}[args.format](args)


def export_onnx(args: argparse.Namespace) -> None:
    """Graphs, dictionaries and text pipeline."""
    from rskip.cli._model import output_folder

    try:
        from rskip.translation.onnx_model import write_onnx
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("onnx", "onnxruntime", "onnxscript"):
            raise
        raise ValueError(f"export onnx needs {error.name}: install it with pip install 'rskip[onnx]'") from error

    with output_folder(args.output, replace=args.force, contents=ONNX_CONTENTS) as folder:
        translator, model = _load(args)
        write_onnx(
            model,
            folder,
            text=translator.text,
            source=translator.source_dictionary,
            target=translator.target_dictionary,
            precision=args.quantization or "float32",
        )
    print(f"wrote {args.output}: translate with rskip translate --model {args.output}")


def export_ct2(args: argparse.Namespace) -> None:
    """Folds, converts, and puts the text pipeline beside the model."""
    from rskip.cli._model import output_folder
    from rskip.text import TextPipeline

    try:
        from rskip.translation.ctranslate2_model import write_ctranslate2
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ctranslate2":
            raise
        raise ValueError("export ct2 needs CTranslate2: install it with pip install 'rskip[ct2]'") from error

    with output_folder(args.output, replace=args.force, contents=CT2_CONTENTS) as folder:
        translator, model = _load(args)
        write_ctranslate2(
            model,
            folder,
            source=translator.source_dictionary,
            target=translator.target_dictionary,
            quantization=args.quantization,
        )
        if isinstance(translator.text, TextPipeline):
            translator.text.save(folder / "text")
    print(f"wrote {args.output}: open it with ctranslate2.Translator({str(args.output)!r})")


def export_fairseq(args: argparse.Namespace) -> None:
    """Writes the checkpoint in fairseq's format, as its own architecture or as stock's."""
    from rskip.checkpoint import read_checkpoint, write_checkpoint
    from rskip.checkpoint.stock import stock_checkpoint
    from rskip.settings.errors import SettingError
    from rskip.translation.model_files import find_checkpoint

    if args.output.suffix != ".pt":
        raise ValueError(f"--output {args.output}: the name of fairseq's checkpoints ends in .pt")
    check_replaceable(args.output, replace=args.force)
    path = find_checkpoint(args.model)
    checkpoint = read_checkpoint(path)
    if args.stock:
        try:
            checkpoint = stock_checkpoint(
                _build(checkpoint),
                source_language=checkpoint.config["source_lang"],
                target_language=checkpoint.config["target_lang"],
            )
        except SettingError as error:
            raise error.within(source=str(path)) from None
    write_checkpoint(args.output, checkpoint)
    arch = checkpoint.config["arch"]
    user_dir = " --user-dir rskip" if "connection" in checkpoint.config["model"] else ""
    print(f"wrote {args.output} ({arch}): translate with fairseq-generate DATA --path {args.output}{user_dir}")


def _add_format(formats: Any, name: str, text: str) -> argparse.ArgumentParser:
    return formats.add_parser(
        name,
        help=text.partition("\n")[0],
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _load(args: argparse.Namespace) -> tuple[Translator, Transformer]:
    """The translator of a checkpoint, and its model."""
    from rskip.transformer import Transformer
    from rskip.translation import Translator
    from rskip.translation.model_files import find_checkpoint

    translator = Translator.from_pretrained(find_checkpoint(args.model), **model_settings(args))
    assert isinstance(translator.model, Transformer)
    return translator, translator.model


def _build(checkpoint: Checkpoint) -> Transformer:
    from rskip.checkpoint import build_transformer

    embeddings = (checkpoint.model.get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
    source, target = (0 if each is None else sum(each.shape[:1]) for each in embeddings)
    return build_transformer(checkpoint, source_vocabulary=source, target_vocabulary=target)
