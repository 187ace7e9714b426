"""Tiny random Marian models as transformers writes them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoint.conftest import both

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

WORDS = {
    "en": "the dog runs over a green field while two cats sleep near our old house and I don't know why",
    "de": "der Hund läuft über ein grünes Feld während zwei Katzen nahe unserem alten Haus schlafen",
}


@cache
def pieces(language: str, **settings: Any) -> bytes:
    """A small SentencePiece model."""
    generator = random.Random(language)
    text = [" ".join(generator.choices(WORDS[language].split(), k=8)) + generator.choice(".!?") for _ in range(200)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, hard_vocab_limit=False,
        num_threads=1, minloglevel=2, **{"vocab_size": 90, **settings},
    )  # fmt: skip
    return model.getvalue()


def units(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [
        processor.id_to_piece(number)
        for number in range(processor.get_piece_size())
        if not processor.is_control(number)
    ]


def vocabulary(tokens: Iterable[str]) -> dict[str, int]:
    """In the order of the opus-mt models: the end, the unknown token, the others, padding."""
    order = dict.fromkeys(["</s>", "<unk>", *tokens, "<pad>"])
    return {token: number for number, token in enumerate(order)}


def write_marian(
    folder: Path,
    *,
    separate: bool = False,
    languages: Iterable[str] = (),
    spm: dict[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    save: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """A model with its tokenizer.

    :param separate: two vocabularies and two embeddings.
    :param languages: target languages that have a token.
    :param spm: how the SentencePiece models are trained.
    :param save: further arguments of the model's `save_pretrained`.
    :param config: fields of MarianConfig.
    """
    folder.mkdir()
    models = [pieces(language, **(spm or {})) for language in ("en", "de")]
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    source, target = map(units, models)
    source += [f">>{language}<<" for language in languages]
    # transformers wants the source's padding to be a row of the target too
    filling = [f"filling{number}" for number in range(len(source))]
    tokens = [source, [*target, *filling]] if separate else [[*source, *target]]
    vocabularies = [vocabulary(each) for each in tokens]
    for name, each in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        (folder / name).write_text(json.dumps(each))
    about = {
        "source_lang": "en",
        "target_lang": "de",
        "separate_vocabs": separate,
        "tokenizer_class": "MarianTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    sizes = both(ffn_dim=24, attention_heads=2, layers=2)
    settings = {
        **sizes, "vocab_size": len(vocabularies[0]), "decoder_vocab_size": len(vocabularies[-1]), "d_model": 16,
        "max_position_embeddings": 64, "activation_function": "swish", "scale_embedding": True,
        "share_encoder_decoder_embeddings": not separate, "pad_token_id": vocabularies[0]["<pad>"],
        "decoder_start_token_id": vocabularies[-1]["<pad>"], "eos_token_id": 0, "forced_eos_token_id": 0, **config,
    }  # fmt: skip
    model = random_model(transformers.MarianConfig(**settings))
    model.to(dtype).save_pretrained(folder, **(save or {}))
    return folder


def random_model(config: Any) -> Any:
    """A Marian model whose every part matters."""
    model = random_weights(transformers.MarianMTModel(config))
    table = model.get_output_embeddings().weight
    table[config.decoder_start_token_id] = 0
    return model


def random_weights(model: Any) -> Any:
    """The model, whose every part matters."""
    torch.manual_seed(7)
    model.eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "embed_positions" in name and model.config.model_type != "mbart":
            continue
        if "norm" in name and name.endswith("weight"):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            torch.nn.init.normal_(parameter, std=0.2)
    if hasattr(model, "final_logits_bias"):
        torch.nn.init.normal_(model.final_logits_bias, std=0.5)
    return model


@pytest.fixture
def marian(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tiny model, and gives its folder."""
    return lambda **settings: write_marian(tmp_path / f"marian{len(list(tmp_path.iterdir()))}", **settings)
