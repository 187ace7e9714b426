"""A Transformer for inference on a CPU. B sentences, K beams, S source length, V target vocabulary."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from rskip.cpu.decoding import StackDecoder
from rskip.cpu.encoding import StackEncoder
from rskip.cpu.library import Library, checked_indices, find_library, native_library
from rskip.cpu.linear import in_int8
from rskip.cpu.module_stack import ModuleStack
from rskip.cpu.precision import set_precision
from rskip.cpu.state import CpuState
from rskip.transformer.config import TransformerProperties
from rskip.transformer.encoder import Encoder, Memory
from rskip.transformer.model import EncoderDecoder
from rskip.transformer.state import IncrementalState

LONGEST_SOURCE = 256  # PyTorch's attention is faster for longer sources


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


class CpuTransformer(TransformerProperties):
    """A Transformer whose encoder and decoding steps run in the compiled kernels; also a `TranslationModel`.

    PyTorch computes the parts that have no kernel, between the kernels. If no kernel fits (training, float64, another
    device, an encoder that does not read tokens), the Transformer itself computes. Results are equal up to rounding:
    sums are in float32 even in bfloat16. Threads may share one instance.

    :param model: the Transformer.
    """

    def __init__(self, model: EncoderDecoder) -> None:
        self.model: Any = model
        self.config: Any = model.config
        self._stacks: dict[str, tuple[ModuleStack, Any]] = {}  # what runs the encoder and the decoder

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stacks": {}}

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device

    @property
    def max_positions(self) -> int | None:
        """The maximum target length in tokens, including the end symbol; None without a limit."""
        return self.model.max_positions

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
        embedding = encoder.embed_tokens
        source = checked_indices(library, source, embedding.num_embeddings, "tokens")
        states, _ = self._stack("encoder", StackEncoder, library).encode(source.numpy())
        return Memory(states, source.eq(encoder.config.padding_index))

    @torch.no_grad()
    def start(self, memory: Memory, *, attention: bool = False) -> CpuState | IncrementalState:
        """The state before the first token, with one beam for each sentence of `memory`. See `Decoder.start`."""
        library = self._library()
        if library is None:
            return self.model.start(memory, attention=attention)
        return CpuState(self._stack("decoder", StackDecoder, library), memory, attention=attention)

    def step(self, tokens: Tensor, state: CpuState | IncrementalState) -> Tensor:
        """Logits (B, K, V) for the token after `tokens` (B, K) in each beam. `tokens` are appended to the state."""
        return state.step(tokens) if isinstance(state, CpuState) else self.model.step(tokens, state)

    def reorder(
        self, state: CpuState | IncrementalState, parents: Tensor, sentences: Tensor | None = None
    ) -> None:
        """Beam k continues `parents[:, k]`. See `StepDecoder.reorder`."""
        state.reorder(parents, sentences)

    def _library(self) -> Library | None:
        return None if self.model.training else native_library(self.model.decoder.embed_tokens.weight)

    def _stack(self, side: Literal["encoder", "decoder"], kind: Any, library: Library) -> Any:
        """What runs the stack as it is now."""
        stack, runs = self._stacks.get(side, (None, None))
        if stack is None or not stack.is_current():
            module = getattr(self.model, side)
            stack = ModuleStack(module)
            runs = kind(library, stack, module.embed_tokens.weight)
            self._stacks[side] = stack, runs
        return runs
