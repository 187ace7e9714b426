"""Translation models that run without PyTorch: the kernels compute the encoder, all steps and the search.

B sentences, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from rskip.checkpoint.checkpoint import PAIRS
from rskip.checkpoint.translation import EMBEDDINGS, check_vocabulary, is_stock, transformer_settings
from rskip.cpu.decoding import StackDecoder
from rskip.cpu.encoding import StackEncoder
from rskip.cpu.library import Library, find_library, library_for_int8
from rskip.cpu.weights import Parameters, read_stacks
from rskip.extras import advice
from rskip.generation.compiled import CompiledSearch, EachStep
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions, SpecialTokens
from rskip.kernel_forms import NoKernelForm
from rskip.settings.errors import SettingError
from rskip.transformer.config import TransformerProperties


class CpuDevice(str):
    """The CPU, for readers of `device`. PyTorch accepts it as a device."""

    type: ClassVar[str] = "cpu"
    index: ClassVar[None] = None  # type: ignore[assignment]


class Stored(Protocol):
    """A model in files, whose settings `check_translates` has checked. Unpickling reads the files again."""

    @property
    def path(self) -> Path:
        """The file or folder."""

    @property
    def config(self) -> dict[str, Any]:
        """The `Checkpoint.config`."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of its parameters."""

    def parameters(self) -> AbstractContextManager[Parameters]:
        """Its parameters."""


class RuntimeModel(TransformerProperties):
    """A translation model in files, on the CPU. Threads may share one. It can be pickled. Unpickling reads the files
    again, and raises an error if they were replaced.

    :param precision: "float32", "bfloat16" or "int8".
    :param source_words: size of the source dictionary, `target_words` of the target one.
    :raises NoKernelForm: the kernels are missing or can't compute the model, so only PyTorch can. The text says why.
    :raises ValueError: int8 without 8-bit products, or as for `rskip.checkpoint.build_transformer`.
    """

    device = CpuDevice("cpu")

    def __init__(
        self,
        stored: Stored,
        *,
        precision: str = "float32",
        source_words: int,
        target_words: int,
    ) -> None:
        settings = transformer_settings(stored.config)
        if is_stock(settings) or PAIRS in stored.config:
            raise NoKernelForm("it is one of fairseq's own models")
        for side, size in (("source", source_words), ("target", target_words)):
            check_vocabulary(side, stored.shapes[EMBEDDINGS[side]][0], size)
        for side in ("encoder", "decoder"):
            settings[f"{side}_connection"] = settings.get(f"{side}_connection") or settings.get("connection")
        self.stored, self._words = stored, (source_words, target_words)
        self.library = library_for_int8() if precision == "int8" else _library()
        self.precision = precision
        with stored.parameters() as parameters:
            self.config, encoder, decoder = read_stacks(self.library, settings, parameters, precision)
            self._fingerprint = settings, parameters.fingerprint()
        like = np.empty(0, encoder.embed_tokens.weight.dtype)
        self._encoder = StackEncoder(self.library, encoder, like)
        self._decoder = StackDecoder(self.library, decoder, like)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.stored, self.precision, *self._words, self._fingerprint)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.stored.path)!r}, precision={self.precision!r})"

    @property
    def max_positions(self) -> int | None:
        """The maximum target length in tokens, including the end symbol; None without a limit."""
        return self.config.max_target_positions if self.config.decoder_learned_pos else None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: SearchOptions,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        special: SpecialTokens,
        each_step: EachStep = None,
    ) -> list[list[Hypothesis]]:
        """The `options.nbest` best hypotheses of each source, with NumPy arrays. See `rskip.generation.beam_search`.

        :param sources: token ids with the end.
        :param prefixes: forced first tokens of each translation, padded at the end.
        :raises IndexError: a token is not in the vocabulary.
        :raises ValueError: the model's logits are NaN.
        """
        if not sources:
            return []
        tokens = np.full((len(sources), max(map(len, sources))), self.config.padding_index, np.int64)
        for row, source in zip(tokens, sources, strict=True):
            row[: len(source)] = source
        if tokens.min() < 0 or tokens.max() >= self.config.source_vocabulary:
            expected = f"expected 0 to {self.config.source_vocabulary - 1}"
            raise IndexError(f"tokens include {tokens.min()} or {tokens.max()}: {expected}")
        limits = [options.max_length(len(source), self.max_positions) for source in sources]
        states, read = self._encoder.encode(tokens)
        decoding = self._decoder.decoding(self._decoder.project(states), read.slots, read.counts, options.beam)
        assert decoding is not None
        with CompiledSearch(
            self.library, options, limits=limits, prefixes=prefixes, special=special, words=decoding.step.words,
            source=tokens.shape[1],
        ) as search:  # fmt: skip
            search.run(decoding, each_step)
            return search.hypotheses()


def _library() -> Library:
    found = find_library()
    if found.library is not None:
        return found.library
    reason = f"needs the compiled kernels or torch: {found.problem}"
    raise NoKernelForm(reason, without_torch=SettingError("", reason, advice=f"or {advice('torch')}"))


def _reopened(stored: Stored, precision: str, source_words: int, target_words: int, fingerprint: Any) -> RuntimeModel:
    model = RuntimeModel(stored, precision=precision, source_words=source_words, target_words=target_words)
    if model._fingerprint != fingerprint:
        raise ValueError(f"{stored.path} was replaced since the model was loaded: load the model again")
    return model
