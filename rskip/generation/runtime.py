"""Translation models that run without PyTorch: the kernels compute the encoder, all steps and the search.

B sentences, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from rskip.checkpoint.arrays import arrays_of
from rskip.checkpoint.checkpoint import LANGUAGES, PAIRS
from rskip.checkpoint.config_file import Header, read_header
from rskip.checkpoint.translation import EMBEDDINGS, check_translates, check_vocabulary, is_stock, transformer_settings
from rskip.cpu.kernel_transformer import KernelTransformer
from rskip.generation.compiled import CompiledSearch, EachStep
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions
from rskip.generation.special_tokens import SpecialTokens
from rskip.kernel_forms import NoKernelForm


class CpuDevice(str):
    """The CPU, for readers of `device`. PyTorch accepts it as a device."""

    type: ClassVar[str] = "cpu"
    index: ClassVar[None] = None  # type: ignore[assignment]


class RuntimeModel(KernelTransformer):
    """The translation model of a .safetensors file, on the CPU. It can be pickled. Unpickling reads the file again, and
    raises an error if the file was replaced.

    :param precision: "float32", "bfloat16" or "int8".
    :param source_words: size of the source dictionary, `target_words` of the target one.
    :param header: the file's header if the caller has read and checked it (`check_translates`).
    :raises NoKernelForm: only PyTorch can run the model. The text says why.
    :raises ValueError: as for `rskip.checkpoint.build_transformer`.
    """

    device = CpuDevice("cpu")

    def __init__(
        self,
        file: Path,
        *,
        precision: str = "float32",
        source_words: int,
        target_words: int,
        header: Header | None = None,
    ) -> None:
        if header is None:
            header = read_header(file)
            check_translates(header.config, header.shapes)
        settings = transformer_settings(header.config)
        if is_stock(settings) or LANGUAGES in header.config or PAIRS in header.config:
            raise NoKernelForm("it is one of fairseq's own models")
        for side, size in (("source", source_words), ("target", target_words)):
            check_vocabulary(side, header.shapes[EMBEDDINGS[side]][0], size)
        for side in ("encoder", "decoder"):
            settings[f"{side}_connection"] = settings.get(f"{side}_connection") or settings.get("connection")
        self._made_of = file.absolute(), precision, source_words, target_words
        with arrays_of(file, header) as parameters:
            super().__init__(settings, parameters, precision)
            self._fingerprint = parameters.fingerprint(header.config)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (*self._made_of, self._fingerprint)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._made_of[0])!r}, precision={self.precision!r})"

    @property
    def file(self) -> Path:
        """The .safetensors file."""
        return self._made_of[0]

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
        :raises ValueError: the model's logits are NaN.
        """
        if not sources:
            return []
        limits = [options.max_length(len(source), self.max_positions) for source in sources]
        with CompiledSearch(self.library, options, limits=limits, prefixes=prefixes, special=special) as search:
            search.run(self.decoding(self.encode(sources), options.beam), each_step)
            return search.hypotheses()


def _reopened(file: Path, precision: str, source_words: int, target_words: int, fingerprint: str) -> RuntimeModel:
    model = RuntimeModel(file, precision=precision, source_words=source_words, target_words=target_words)
    if model._fingerprint != fingerprint:
        raise ValueError(f"{file} was replaced since the model was loaded: load the model again")
    return model
