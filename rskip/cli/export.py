"""Write a model for other programs: ONNX, CTranslate2, Hugging Face, or fairseq."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rskip import checkpoint, cpu, transformer
from rskip.checkpoint.fairseq_languages import language_tokens
from rskip.checkpoint.hugging_face import folder_at
from rskip.cli._model import TEXT_FILES, check_replaceable, model_path, output_folder, saying_what_is_assumed
from rskip.cli._model_arguments import add_model_arguments, model_settings
from rskip.settings.errors import SettingError, errors_about
from rskip.text.finding import TOKENS, TokenizerSettings
from rskip.translation import Translator
from rskip.translation.model_files import StoredWeights, find_checkpoint, find_model_files, model_parts, open_model
from rskip.zoo.model_card import marian_card
from rskip.zoo.registry import entry_of_weights

if TYPE_CHECKING:
    from rskip.translation.model_files import Stored

COMMANDS = ("onnx", "ct2", "huggingface", "fairseq")
# what each writes
_ONNX = ("*.onnx", "*.onnx.data", "onnx.json", "dict.*.txt", *TEXT_FILES)
_CT2 = ("model.bin", "config.json", "*_vocabulary.json", *TEXT_FILES)
_MARIAN = (
    "config.json", "generation_config.json", "model.safetensors", "vocab.json", "target_vocab.json", "source.spm",
    "target.spm", "tokenizer_config.json", *TEXT_FILES, "README.md",
)  # fmt: skip
# ctranslate2.specs.model_spec.ACCEPTED_MODEL_TYPES, without importing it for the sake of --help
_QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")


def add_onnx_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quantization", choices=("int8",), help="number format of linear layers (default: float32)")
    _add_arguments(parser)
    add_model_arguments(parser)


def run_onnx(args: argparse.Namespace) -> None:
    """Write a folder of ONNX graphs for rskip translate --model, for one sentence at a time.

    The folder holds encoder.onnx and step.onnx (standard operators, any connection), dictionaries, the text pipeline,
    and onnx.json, which describes the graphs for a runtime. The command compares the logits with those of the model. It
    needs the extra onnx.

        rskip export onnx --model checkpoints/multi30k_en_de/2rskip_ln --output onnx-model
    """
    from rskip.translation.onnx_model import write_onnx  # loads PyTorch, which --help doesn't need

    with output_folder(args.output, replace=args.force, contents=_ONNX) as folder:
        translator, model = _load(args)
        write_onnx(model, folder, translator.tokenizer, precision=args.quantization or "float32")
    print(f"wrote {args.output}: translate with rskip translate --model {args.output}")


def add_ct2_arguments(parser: argparse.ArgumentParser) -> None:
    what = "number format of the weights (default: float32)"
    parser.add_argument("--quantization", choices=_QUANTIZATIONS, help=what)
    _add_arguments(parser)
    add_model_arguments(parser)


def run_ct2(args: argparse.Namespace) -> None:
    """Write a folder that ctranslate2.Translator opens, with the text pipeline.

    CTranslate2 computes λxskip+ln, 1xskip+ln:branch_scale=β, prenorm+ln, deepnorm, layerscale+ln and askip+ln (learned,
    depth), some of them after folding. Other connections are an error. The command needs the extra ct2.

        rskip export ct2 --model checkpoints/multi30k_en_de/1xskip_ln --output ct2-model --quantization int8
    """
    from rskip.translation.ctranslate2_model import write_ctranslate2  # loads PyTorch, which --help doesn't need

    with output_folder(args.output, replace=args.force, contents=_CT2) as folder:
        translator, model = _load(args)
        tokenizer = translator.tokenizer
        dictionaries = {"source": tokenizer.source, "target": tokenizer.target}
        write_ctranslate2(model, folder, **dictionaries, quantization=args.quantization)
        tokenizer.text.save(folder / "text")
    print(f"wrote {args.output}: open it with ctranslate2.Translator({str(args.output)!r})")


def add_huggingface_arguments(parser: argparse.ArgumentParser) -> None:
    kinds, help = ("float32", "float16", "bfloat16"), "type of the written weights (default: %(default)s)"
    parser.add_argument("--dtype", choices=kinds, default="float32", help=help)
    _add_arguments(parser)
    add_model_arguments(parser)


def run_huggingface(args: argparse.Namespace) -> None:
    """Write a folder that transformers' MarianMTModel loads, with the text pipeline and a model card.

    MarianMTModel computes λxskip+ln, 1xskip+ln:branch_scale=β, deepnorm and askip+ln (learned, depth), some of them
    after folding. Other connections are an error. MarianTokenizer encodes text only if the text pipeline is
    SentencePiece without other steps; otherwise encode it with rskip. rskip translate reads the folder too.

        rskip export huggingface --model checkpoints/multi30k_en_de/1xskip_ln --output marian-model
    """
    import torch  # loads PyTorch, which --help doesn't need

    from rskip.translation.marian_model import write_marian

    if args.text == TOKENS:
        problem = f"is {TOKENS}, but the folder needs a text pipeline"
        raise SettingError("text", problem, expected="the pipeline or the subword units that the model was trained on")
    with output_folder(args.output, replace=args.force, contents=_MARIAN) as folder:
        translator, model = _load(args)
        has_tokenizer = write_marian(model, folder, translator.tokenizer, dtype=getattr(torch, args.dtype))
        assert translator.file is not None
        card = marian_card(
            entry_of_weights(translator.file) if translator.file.is_file() else None,
            name=args.output.absolute().name,
            languages=(translator.source_language, translator.target_language),
            connection=model.connection,
            has_tokenizer=has_tokenizer,
            target_vocabulary="vocab.json" if model.config.share_all_embeddings else "target_vocab.json",
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    print(f"wrote {args.output}: open it with transformers.MarianMTModel.from_pretrained({str(args.output)!r})")
    if not has_tokenizer:
        print("MarianTokenizer can't do what this text pipeline does: encode with rskip.text, as README.md shows")


def add_fairseq_arguments(parser: argparse.ArgumentParser) -> None:
    what = "write fairseq's own `transformer`; the model's connection must fold into its"
    parser.add_argument("--vanilla", action="store_true", help=what)
    _add_arguments(parser, output="FILE.pt")


def run_fairseq(args: argparse.Namespace) -> None:
    """Write a .pt file for fairseq-generate --user-dir rskip, or with --vanilla for fairseq without rskip.

    Tensors of a model folder or checkpoint are stored unchanged. With --vanilla they are float32 and have the names of
    fairseq's own `transformer`. Of a Hugging Face folder, the command also writes dict.*.txt and the text pipeline
    (text/) next to the file.

        rskip export fairseq --model checkpoints/multi30k_en_de/2rskip_ln --output model.pt
        rskip export fairseq --model checkpoints/multi30k_en_de/1xskip_ln --vanilla --output vanilla.pt
    """
    from rskip.checkpoint.stock import stock_checkpoint  # loads PyTorch, which --help doesn't need

    check_replaceable(args.output, replace=args.force, suffix=".pt")
    path = _find_one(args.model)
    stored = open_model(path)
    assert isinstance(stored, StoredWeights)
    exported = stored.checkpoint
    if args.vanilla or path.is_dir():
        _check_one_pair(path, stored)
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
    user_dir = " --user-dir rskip" if {"connection", "encoder_connection"} & exported.config["model"].keys() else ""
    print(f"wrote {args.output}{beside}: translate with fairseq-generate DATA --path {args.output}{user_dir}")


def _add_arguments(parser: argparse.ArgumentParser, *, output: str = "FOLDER") -> None:
    """Adds --output, --model and --force."""
    parser.add_argument(
        "--output", type=Path, required=True, metavar=output, help=f"{output.partition('.')[0].lower()} to write"
    )
    parser.add_argument(
        "--model", required=True, metavar="MODEL", help="model folder, checkpoint, or a name from `rskip zoo list`"
    )
    parser.add_argument("--force", action="store_true", help="replace the files of an earlier export")


def _load(args: argparse.Namespace) -> tuple[Translator, transformer.Transformer]:
    """Loads the translator of a checkpoint or of a Hugging Face folder, and its model.

    :raises ValueError: a multilingual model or an ensemble.
    """
    path = _find_one(args.model)
    _check_one_pair(path, open_model(path))
    with saying_what_is_assumed():
        translator = Translator.from_pretrained(path, **model_settings(args)).in_torch()
    model = translator.model.model if isinstance(translator.model, cpu.CpuTransformer) else translator.model
    assert isinstance(model, transformer.Transformer)
    return translator, model


def _check_one_pair(path: Path, stored: Stored) -> None:
    """:raises ValueError: a model with language tokens."""
    assert isinstance(stored, StoredWeights)
    if language_tokens(stored.config) is not None:
        raise ValueError(f"{path} is a multilingual model, which can't be exported: use `rskip translate`")


def _find_one(model: str) -> Path:
    """The checkpoint or the Hugging Face folder of one model.

    :raises FileNotFoundError, ValueError: as `find_checkpoint`, or several models.
    """
    parts = model_parts(model)
    path = model_path(parts[0], task="translation")
    if len(parts) > 1 or (path.is_dir() and len(find_model_files(path)) > 1):
        raise ValueError(f"{model} is an ensemble: expected one model to export")
    found = folder_at(path)
    return find_checkpoint(path) if found is None else found
