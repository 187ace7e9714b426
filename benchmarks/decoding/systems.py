"""fairseq, CTranslate2 and ours with one interface: tokens in, the best hypothesis's tokens out.

Each system makes its own batches from a list of sentences, as it does for a user, with the same batch size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rskip.text import Dictionary

if TYPE_CHECKING:
    from rskip.transformer import Transformer

Tokens = list[int]
_LONGEST = 200  # max target length, as fairseq-generate's --max-len-b


@dataclass(frozen=True)
class Search:
    """Settings of the search.

    :param beam: beam size.
    :param length: fixed number of tokens before the end symbol; None: free.
    """

    beam: int
    length: int | None = None

    @property
    def shortest(self) -> int:
        return self.length or 1

    @property
    def longest(self) -> int:
        return self.length or _LONGEST


class System(Protocol):
    """A system that translates."""

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        """The best hypothesis of each sentence. Sentences contain the end symbol; hypotheses do not."""
        ...


def build_system(
    name: str,
    model: Transformer | None,
    source: Dictionary,
    target: Dictionary,
    search: Search,
    *,
    folder: Path,
    threads: int,
    device: str = "cpu",
) -> System:
    """A system by name: of fairseq and CTranslate2 such as "CTranslate2 int8", of ours with these kinds:

    - "ours": without PyTorch, from a model folder.
    - "PyTorch": the same model in PyTorch, with our kernels.
    - "stored": what `Translator` chooses for a model folder.
    - "ONNX": our search over ONNX graphs.

    :param model: a float32 model, which "PyTorch" takes over. None: all is in `folder`.
    :param folder: the model for CTranslate2, in float32, the model folder or the graphs.
    :param device: "cpu", or a GPU for fairseq and ours.
    """
    # imported here, so that a process loads only its own system's libraries
    kind, precision = name.split()
    if kind == "fairseq":
        assert model is not None
        from decoding.fairseq_system import Fairseq

        return Fairseq(model, source, target, search, half=precision == "float16", gpu=device != "cpu")
    if kind == "CTranslate2":
        from decoding.ctranslate2_system import CTranslate2

        return CTranslate2(folder, source, target, search, precision=precision, threads=threads)
    from decoding.our_system import Ours

    if kind == "stored":
        from rskip.translation import Translator

        stored = Translator.from_pretrained(folder, text="tokens", precision=precision).model
        return Ours(stored, search, threads=threads)
    if kind == "ours":
        from rskip.checkpoint.arrays import ModelFile
        from rskip.generation.runtime import RuntimeModel

        file, words = folder / "model.safetensors", {"source_words": len(source), "target_words": len(target)}
        return Ours(RuntimeModel(ModelFile(file), precision=precision, **words), search, threads=threads)
    if kind == "ONNX":
        from rskip.translation.onnx_decoder import ONNX_FILE, OnnxTransformer, read_settings

        return Ours(OnnxTransformer(folder, read_settings(folder / ONNX_FILE)), search, threads=threads)
    import torch

    from rskip.cpu import for_inference

    assert model is not None
    model.move(torch.device(device))
    return Ours(for_inference(model, precision), search, threads=threads)
