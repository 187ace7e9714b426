"""Workloads: models and sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from measuring.multi30k import multi30k

from decoding.random_text import VOCABULARY, random_dictionary, random_sentences
from decoding.systems import Search, Tokens
from rskip.checkpoint import build_transformer, read_checkpoint
from rskip.text import Dictionary, Tokenizer
from rskip.transformer import Transformer, TransformerConfig
from rskip.translation.metrics import score

STOCK, RECURSIVE = "1xskip+ln", "2rskip+ln"
CHECKPOINTS = Path(__file__).resolve().parents[2] / "checkpoints"


@dataclass(frozen=True)
class Workload:
    """One model per connection, and the sentences to translate.

    :param models: builds the models of STOCK and RECURSIVE, in float32.
    :param sentences: tokens of each sentence, including the end symbol.
    :param latency_sentences_per_round: number of sentences that are translated one by one per round.
    :param bleu: computes sacreBLEU of hypotheses; None for random models.
    """

    name: str
    models: dict[str, Callable[[], Transformer]]
    source: Dictionary
    target: Dictionary
    sentences: list[Tokens]
    search: Search
    batch_size: int
    latency_sentences_per_round: int
    bleu: Callable[[list[Tokens]], float] | None = None


def trained(mirror: str | None, *, sentences: int | None) -> Workload:
    """The Multi30k models of this project on their test set, beam 4, in batches of 64.

    :param mirror: folder or address of the corpus' files; None: its publisher.
    """
    folder = CHECKPOINTS / "multi30k_en_de/1xskip_ln"
    texts = {language: lines[:sentences] for language, lines in multi30k("test", mirror).items()}
    tokenizer = Tokenizer.load(folder)
    source, target = tokenizer.source, tokenizer.target

    def load(name: str) -> Transformer:
        checkpoint = read_checkpoint(CHECKPOINTS / name / "model.safetensors")
        return build_transformer(checkpoint, source_vocabulary=len(source), target_vocabulary=len(target))

    def bleu(hypotheses: list[Tokens]) -> float:
        decoded = [tokenizer.decode(tokens) for tokens in hypotheses]
        return round(score(decoded, texts["de"])["sacrebleu"].value, 2)

    return Workload(
        name="Multi30k EN-DE, trained, 128/256/4, 4+4 layers",
        models={
            STOCK: lambda: load("multi30k_en_de/1xskip_ln"),
            RECURSIVE: lambda: load("multi30k_en_de/2rskip_ln"),
        },
        source=source,
        target=target,
        sentences=[tokenizer.encode(sentence) for sentence in texts["en"]],
        search=Search(beam=4),
        batch_size=64,
        latency_sentences_per_round=20,
        bleu=bleu,
    )


def small(*, sentences: int) -> Workload:
    """Random weights, 256/1024/4, 3+3 layers, 31 steps."""
    return _random("random, 256/1024/4, 3+3 layers", (256, 1024, 4, 3), sentences, latency_sentences_per_round=10)


def base(*, sentences: int) -> Workload:
    """Random weights, Transformer-base, 31 steps."""
    name = "random, 512/2048/8, 6+6 layers"
    return _random(name, (512, 2048, 8, 6), sentences, batch_size=32, latency_sentences_per_round=4)


def random_model(sizes: tuple[int, int, int, int], connection: str) -> Transformer:
    """A model with these features, FFN dimension, heads and layers per stack, always with the same weights."""
    names = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in zip(names, sizes, strict=True)}
    config = TransformerConfig(
        VOCABULARY,
        VOCABULARY,
        encoder_connection=connection,
        decoder_connection=connection,
        share_all_embeddings=True,
        **sides,
    )
    torch.manual_seed(1)
    return Transformer(config).requires_grad_(False).eval()


def _random(
    name: str,
    sizes: tuple[int, int, int, int],
    sentences: int,
    *,
    batch_size: int = 64,
    latency_sentences_per_round: int,
) -> Workload:
    dictionary = random_dictionary()
    return Workload(
        name=name,
        models={each: lambda each=each: random_model(sizes, each) for each in (STOCK, RECURSIVE)},
        source=dictionary,
        target=dictionary,
        sentences=random_sentences(sentences, (10, 31)),
        search=Search(beam=4, length=30),
        batch_size=batch_size,
        latency_sentences_per_round=latency_sentences_per_round,
    )
