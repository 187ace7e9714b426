"""A Transformer for inference on a CPU. B sentences, K beams, S source length, V target vocabulary."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from rskip.cpu.decoder import CpuDecoder, CpuDecoding, CpuState
from rskip.cpu.encoding import Encoding, Sources, sentences_at_once
from rskip.cpu.int8 import in_int8
from rskip.cpu.library import Library, find_library
from rskip.cpu.module_program import CpuStack, ModuleProgram
from rskip.cpu.precision import set_precision
from rskip.cpu.tensors import checked_indices, native_library
from rskip.transformer.encoder import Encoder, Memory
from rskip.transformer.model import EncoderDecoder
from rskip.transformer.state import IncrementalState

LONGEST_SOURCE = 256  # PyTorch's attention is faster for longer sources


class CpuEncoder(CpuStack[Encoding]):
    """Computes `Encoder`'s memories up to rounding: sums are in float32 even in bfloat16."""

    def __init__(self, encoder: Encoder, library: Library) -> None:
        like = encoder.embed_tokens.weight
        super().__init__(encoder, library, lambda rows: Encoding(ModuleProgram(library, like, rows), encoder))
        self.encoder = encoder

    @torch.no_grad()
    def encode(self, source: Tensor) -> Memory:
        """As `Encoder.encode`."""
        embedding, padding = self.encoder.embed_tokens, self.encoder.config.padding_index
        source = checked_indices(self.library, source, embedding.num_embeddings, "tokens")
        sentences, length = source.shape
        sources, at_once = Sources.of(source.numpy(), padding), sentences_at_once(length)
        states = embedding.weight.new_empty(sentences, length, embedding.embedding_dim)
        program = self.program(min(at_once, sentences) * length)
        for first in range(0, sentences, at_once):
            last = first + at_once
            program.compute(sources.part(first, last), states[first:last])
        return Memory(states, source.eq(padding))


def for_inference(model: Any, precision: str | None = None) -> Any:
    """Prepares a model for inference: on a CPU a `CpuTransformer` if the kernels are compiled, otherwise the model.

    :param model: an `EncoderDecoder`, such as a `Transformer`, or a result of this function. It is changed in place.
    :param precision: see `set_precision`. None: the model is not converted, and the result uses its current parameters,
        so a model can be tested during training.
    :raises ValueError: see `set_precision`.
    """
    if isinstance(model, CpuTransformer):
        model = model.model
    if precision is not None:
        set_precision(model, precision)
    is_fast = model.device.type == "cpu" and find_library().library is not None
    return CpuTransformer(model) if is_fast else model


class CpuTransformer:
    """A Transformer whose encoder and decoding steps run in the compiled kernels; also a `TranslationModel`.

    If no kernel fits (training, float64, another device, an encoder that does not read tokens), the Transformer itself
    computes. All other attributes, such as `state_dict`, are the Transformer's. Threads may share one instance.

    :param model: the Transformer.
    """

    config: Any  # these are the model's, by `__getattr__`
    device: torch.device
    connection: str
    max_positions: int | None
    max_source_positions: int | None
    target_start: Literal["end", "begin"]
    trained_source_positions: int

    def __init__(self, model: EncoderDecoder) -> None:
        self.model: Any = model
        self._encoder: CpuEncoder | None = None
        self._decoder: CpuDecoder | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # the object is being unpickled
            raise AttributeError(name)
        return getattr(self.model, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "_encoder": None, "_decoder": None}

    def __call__(self, *inputs: Any) -> Tensor:
        """The Transformer's own forward pass."""
        return self.model(*inputs)

    @property
    def precision(self) -> str:
        """The number format of its computations: "float32", "bfloat16", ..., or "int8"."""
        return "int8" if in_int8(self.model) else self.model.precision

    def move(self, device: torch.device) -> None:
        """Moves the model to the device, where PyTorch computes.

        :raises ValueError: the device does not support the model's precision.
        """
        if device.type != "cpu" and self.precision == "int8":
            raise ValueError(f"an int8 model runs only on CPUs, not on {device}: load it in bfloat16 there")
        self.model.move(device)

    def encode(self, source: Tensor, *inputs: Any, padded: bool | None = None) -> Memory:
        """Encodes source tokens (B, S), or the model's other inputs, into the memory. `padded`: see `Memory`.

        Hooks on the encoder's modules do not see the kernels' results.
        """
        encoder = self.model.encoder
        if not isinstance(encoder, Encoder):
            return self.model.encode(source, *inputs)
        library = self._library()
        if library is None or torch.is_grad_enabled() or source.size(1) > LONGEST_SOURCE:
            return self.model.encode(source, padded=padded)
        if self._encoder is None or not self._encoder.current():
            self._encoder = CpuEncoder(encoder, library)
        return self._encoder.encode(source)

    def start(self, memory: Memory, *, attention: bool = False) -> CpuState | IncrementalState:
        """The state before the first token, with one beam for each sentence of `memory`. See `Decoder.start`."""
        library = self._library()
        if library is None:
            return self.model.start(memory, attention=attention)
        if self._decoder is None or not self._decoder.current():
            self._decoder = CpuDecoder(self.model.decoder, library)
        return self._decoder.start(memory, attention=attention)

    def step(self, tokens: Tensor, state: CpuState | IncrementalState) -> Tensor:
        """Logits (B, K, V) for the token after `tokens` (B, K) in each beam. `tokens` are appended to the state."""
        return state.decoder.step(tokens, state) if isinstance(state, CpuState) else self.model.step(tokens, state)

    def reorder(
        self, state: CpuState | IncrementalState, parents: Tensor, sentences: Tensor | None = None
    ) -> None:
        """Beam k continues `parents[:, k]`. See `StepDecoder.reorder`."""
        state.reorder(parents, sentences)

    def decoding(self, state: CpuState | IncrementalState, beams: int) -> CpuDecoding | None:
        """What the compiled search needs to run all steps from a new state; None if it can't."""
        return state.decoder.decoding(state, beams) if isinstance(state, CpuState) else None

    def _library(self) -> Library | None:
        return None if self.model.training else native_library(self.model.decoder.embed_tokens.weight)
