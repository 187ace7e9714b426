"""fairseq, CTranslate2 and ours behind one call: tokens in, the best hypothesis' tokens out.

Each goes its own way from a list of sentences to batches: what a user of it would get, with the same batch size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from rskip.cpu import for_inference
from rskip.text import Dictionary
from rskip.transformer import Transformer

Tokens = list[int]
_LONGEST = 200  # tokens of a target, as fairseq-generate's --max-len-b


@dataclass(frozen=True)
class Search:
    """beam: hypotheses kept. length: tokens before the end that every target has; None: as the model likes."""

    beam: int
    length: int | None = None

    @property
    def shortest(self) -> int:
        return self.length or 1

    @property
    def longest(self) -> int:
        return self.length or _LONGEST


class System(Protocol):
    """Something that translates."""

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        """The best hypothesis of each sentence, which has its end token; hypotheses are without theirs."""
        ...


def build_system(
    name: str,
    model: Transformer,
    source: Dictionary,
    target: Dictionary,
    search: Search,
    *,
    folder: Path,
    threads: int,
    device: str = "cpu",
) -> System:
    """The system called "fairseq float32", "CTranslate2 int8" or "ours bfloat16", for example.

    :param model: float32. Ours takes it over and changes its precision.
    :param folder: the same model for CTranslate2, in float32; for "ONNX float32", for example, its graphs.
    :param device: "cpu" or a GPU, which fairseq and ours can take.
    """
    # imported here: no process may hold what another system computes with
    kind, precision = name.split()
    if kind == "fairseq":
        from decoding.fairseq_system import Fairseq

        return Fairseq(model, source, target, search, half=precision == "float16", gpu=device != "cpu")
    if kind == "CTranslate2":
        from decoding.ctranslate2_system import CTranslate2

        return CTranslate2(folder, source, target, search, precision=precision, threads=threads)
    from decoding.our_system import Ours

    if kind == "ONNX":
        from rskip.translation.onnx_decoder import ONNX_FILE, OnnxTransformer, read_settings

        return Ours(OnnxTransformer(folder, read_settings(folder / ONNX_FILE)), search, threads=threads)
    model.move(torch.device(device))
    return Ours(for_inference(model, precision), search, threads=threads)
