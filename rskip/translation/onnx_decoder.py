"""Runs a Transformer's ONNX graphs, which `onnx_model` writes, with onnxruntime behind the same search.

B sentences, K beams, R = B·K rows, L decoder layers, H heads, D features of a head, S source length, T positions so
far, V vocabulary.

`encoder.onnx` maps the source (B, S) to the memory: a mask (B, 1, 1, S), which is added to scores, and the keys and
values of each decoder layer (B, H, S, D).

The inputs of `step.onnx` are the last tokens (B, K), their position, the previous row that each beam continues (B, K),
the keys and values so far (R', H, T, D), and the memory. The outputs are logits (B, K, V), the last layer's attention
(B, K, S), and the keys and values (R, H, T + 1, D) for the next step. The graph reorders beams, so a caller only stores
the last outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy
import torch
from torch import Tensor

from rskip.extras import extra
from rskip.machine.torch_errors import out_of_memory
from rskip.translation.onnx_settings import ENCODER, ONNX_FILE, STEP, OnnxSettings, read_settings

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Array = numpy.ndarray[Any, Any]


@dataclass
class OnnxState:
    """The next inputs of the graph, beams per sentence, the previous row that each continues (B, K), and attention."""

    inputs: dict[str, Array]
    beams: int
    parents: Array
    wants_attention: bool
    attention: Tensor | None = None


class OnnxTransformer:
    """A `TranslationModel` from a folder of graphs, with PyTorch's number of threads. Pickling stores its path."""

    device = torch.device("cpu")

    def __init__(self, folder: Path, settings: OnnxSettings) -> None:
        self.folder, self.settings = folder, settings
        self._encoder, self._step = (_open(folder / name, torch.get_num_threads()) for name in (ENCODER, STEP))
        self.precision = settings.precision
        self.max_positions, self.max_source_positions = settings.max_target_positions, settings.max_source_positions
        self.trained_source_positions = settings.trained_source_positions
        self.connection = " / ".join(dict.fromkeys((settings.encoder_connection, settings.decoder_connection)))
        self.target_start: Literal["end", "begin"] = "begin"
        if settings.start_index == settings.end_index:
            self.target_start = "end"
        kept = [f"{kind}_{layer}" for layer in range(settings.layers) for kind in ("key", "value")]
        self._memory = ["memory_mask", *(f"memory_{name}" for name in kept)]
        self._past, self._present = ([f"{time}_{name}" for name in kept] for time in ("past", "present"))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.folder,)

    def move(self, device: torch.device) -> None:
        """Checks the device, since the graphs only run on the CPU. Raises `ValueError` for another device."""
        if device != self.device:
            raise ValueError(f"an ONNX model runs on the CPU, not on {device}: use the model that it was exported from")

    def encode(self, source: Tensor, *, padded: bool | None = None) -> dict[str, Array]:
        """The memory of padded source tokens (B, S), as inputs of the step by name."""
        return dict(zip(self._memory, _run(self._encoder, self._memory, {"source": source.numpy()}), strict=True))

    def start(self, memory: dict[str, Array], *, attention: bool = False) -> OnnxState:
        """The state before the first token, with one beam per sentence of `memory`."""
        sentences = len(memory["memory_mask"])
        nothing = numpy.zeros((sentences, self.settings.heads, 0, self.settings.head_features), numpy.float32)
        inputs = {**memory, **dict.fromkeys(self._past, nothing)}
        inputs["position"] = numpy.array([self.settings.first_position])
        return OnnxState(inputs, 1, numpy.arange(sentences)[:, None], wants_attention=attention)

    def step(self, tokens: Tensor, state: OnnxState) -> Tensor:
        """Adds `tokens` (B, K) to the state, and returns the next logits (B, K, V)."""
        inputs = state.inputs
        inputs["tokens"], inputs["parents"] = tokens.numpy(), state.parents
        logits, attention, *present = _run(self._step, ["logits", "attention", *self._present], inputs)
        inputs.update(zip(self._past, present, strict=True))
        inputs["position"] = inputs["position"] + 1
        if state.wants_attention:
            state.attention = torch.from_numpy(attention)
        state.beams = tokens.size(1)
        state.parents = numpy.arange(tokens.numel()).reshape(tokens.shape)
        return torch.from_numpy(logits)

    def reorder(self, state: OnnxState, parents: Tensor, sentences: Tensor | None = None) -> None:
        """Reorders the state, so that beam k continues parents[:, k]. See `StepDecoder.reorder`."""
        if sentences is None:
            rows = numpy.arange(len(parents))
        else:
            rows = sentences.numpy()
            for name in self._memory:
                state.inputs[name] = state.inputs[name][rows]
        state.parents = rows[:, None] * state.beams + parents.numpy()


def _reopened(folder: Path) -> OnnxTransformer:
    return OnnxTransformer(folder, read_settings(folder / ONNX_FILE))


def _run(session: InferenceSession, outputs: list[str], inputs: dict[str, Array]) -> Any:
    try:
        return session.run(outputs, inputs)
    except Exception as error:  # onnxruntime's errors have no common class
        if out_of_memory(error):
            raise MemoryError from error
        raise


def _open(path: Path, threads: int) -> InferenceSession:
    with extra("onnx", what=str(path.parent)):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # no messages, since errors are raised
    try:
        # the fusion of sum and normalisation makes a step 10 % slower
        return onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
        )
    except Exception as error:  # onnxruntime's errors have no common class
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{path} can't be opened by onnxruntime {onnxruntime.__version__}: {reason}") from error
