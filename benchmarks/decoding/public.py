"""Random models of the shapes of public models, stored as a user has them, and CTranslate2's conversions of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from decoding.systems import Search
from rskip.checkpoint import Checkpoint, write_model
from rskip.text import Dictionary
from rskip.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class Shape:
    """A public model's sizes.

    :param name: of the table's rows.
    :param sizes: features, FFN dimension, heads, and layers per stack.
    :param vocabulary: tokens.
    :param connection: of its blocks.
    :param settings: further fields of `TransformerConfig`.
    """

    name: str
    sizes: tuple[int, int, int, int]
    vocabulary: int
    connection: str
    settings: dict[str, Any]

    def config(self, vocabulary: int) -> TransformerConfig:
        """The configuration, with this number of tokens."""
        names = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
        sides: dict[str, Any] = {
            f"{side}_{name}": size
            for side in ("encoder", "decoder")
            for name, size in zip((*names, "connection"), (*self.sizes, self.connection), strict=True)
        }
        return TransformerConfig(vocabulary, vocabulary, share_all_embeddings=True, **sides, **self.settings)


MARIAN: dict[str, Any] = {
    "activation_fn": "swish", "output_bias": True, "start": "begin", "encoder_learned_pos": True,
    "decoder_learned_pos": True, "max_source_positions": 512, "max_target_positions": 512,
}  # fmt: skip
SHAPES = {
    "opus-mt": Shape("opus-mt, 512/2048/8, 6+6 layers, Marian", (512, 2048, 8, 6), 58_101, "1xskip+ln", MARIAN),
    "nllb": Shape("NLLB-600M, 1024/4096/16, 12+12 layers", (1024, 4096, 16, 12), 256_206, "prenorm+ln", {}),
}
SEARCH = Search(beam=4, length=30)


def random_dictionary(vocabulary: int) -> Dictionary:
    """A dictionary of this size."""
    return Dictionary(f"token{index}" for index in range(vocabulary - 4))


def write_models(shape: Shape, folder: Path, *, vocabulary: int) -> int:
    """Writes one random model to `folder`/rskip and, for CTranslate2, to `folder`/ct2. Returns its parameters."""
    from rskip.translation.ctranslate2_model import write_ctranslate2

    config, dictionary = shape.config(vocabulary), random_dictionary(vocabulary)
    torch.manual_seed(1)
    model = Transformer(config).requires_grad_(False).eval()
    settings = {name: value for name, value in config.to_dict().items() if "vocabulary" not in name}
    del settings["padding_index"]
    languages = {"source_lang": "a", "target_lang": "b"}
    about = {"task": "translation", "arch": "random", **languages, "model": settings}
    write_model(folder / "rskip", Checkpoint(model=model.state_dict(), config=about))
    for language in languages.values():
        dictionary.save(folder / "rskip" / f"dict.{language}.txt")
    write_ctranslate2(model, folder / "ct2", source=dictionary, target=dictionary)
    return sum(parameter.numel() for parameter in model.parameters())
