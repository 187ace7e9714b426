"""Write a folder that transformers' MarianMTModel loads, with the text pipeline and a model card.

MarianMTModel computes λxskip+ln, 1xskip+ln:branch_scale=β, deepnorm and askip+ln (learned, depth), some of them after
folding. Other connections are an error. MarianTokenizer encodes text only if the text pipeline is SentencePiece without
other steps; otherwise encode it with rskip. rskip translate reads the folder too.

    rskip export huggingface --model checkpoints/multi30k_en_de/1xskip_ln --output marian-model
"""

from __future__ import annotations

import argparse

from rskip.cli._model import output_folder
from rskip.cli._model_arguments import add_model_arguments
from rskip.cli.export._model import add_export_arguments, load
from rskip.settings.errors import SettingError
from rskip.text.finding import TOKENS
from rskip.zoo.marian_card import marian_card
from rskip.zoo.registry import entry_of_weights

CONTENTS = (
    "config.json", "generation_config.json", "model.safetensors", "vocab.json", "target_vocab.json", "source.spm",
    "target.spm", "tokenizer_config.json", "text", "README.md",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="type of the written weights (default: %(default)s)",
    )
    add_export_arguments(parser)
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Writes the model, its text and its card."""
    import torch  # loads PyTorch, which --help doesn't need

    from rskip.translation.marian_model import write_marian

    if args.text == TOKENS:
        problem = f"is {TOKENS}, but the folder needs a text pipeline"
        raise SettingError("text", problem, expected="the pipeline or the subword units that the model was trained on")
    with output_folder(args.output, replace=args.force, contents=CONTENTS) as folder:
        translator, model = load(args)
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
