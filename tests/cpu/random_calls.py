"""Calls the kernels' Python entry points with random shapes, types and indices.

    python random_calls.py FOLDER CALLS

FOLDER holds the kernels as `_kernels.so`, compiled with the address sanitizer, which ends the program at the first read
or write outside a tensor. A call may raise the errors of PyTorch's operators; the program prints how many calls did.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import rskip.cpu.library

folder, calls = Path(sys.argv[1]), int(sys.argv[2])
rskip.cpu.library.__file__ = str(folder / "library.py")

from rskip.cpu import CpuTransformer, find_library, for_inference  # noqa: E402
from rskip.cpu.linear import native_linear  # noqa: E402
from rskip.cpu.loss import cross_entropy_, log_softmax  # noqa: E402
from rskip.cpu.packing import PackedMap, PackedMap8  # noqa: E402
from rskip.generation import SearchOptions, SpecialTokens, find_search  # noqa: E402
from rskip.nn import Residuals  # noqa: E402
from rskip.transformer import Transformer, TransformerConfig  # noqa: E402
from rskip.transformer.encoder import Memory  # noqa: E402

TYPES = [torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool]
WORDS = 70
library = find_library().library
assert library is not None, find_library().problem
draw = random.Random(0)
torch.manual_seed(0)


def tensor(*shape: int, like: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor that usually has this type and shape, but sometimes another, or is not contiguous."""
    if draw.random() < 0.1:
        shape = tuple(max(0, size + draw.choice([-1, 1])) if draw.random() < 0.5 else size for size in shape)
    dtype = like if draw.random() < 0.85 else draw.choice(TYPES)
    values = (3 * torch.randn(shape)).to(dtype)
    return values.transpose(0, -1).contiguous().transpose(0, -1) if draw.random() < 0.1 else values


def indices(*shape: int, below: int) -> torch.Tensor:
    values = torch.randint(0, max(below, 1), shape)
    if values.numel() and draw.random() < 0.15:
        values.view(-1)[draw.randrange(values.numel())] = draw.choice([-1, below, 2**31, -(2**40), 10**12])
    return values.to(torch.int64 if draw.random() < 0.8 else draw.choice(TYPES))


def model(precision: str, decoder_connection: str = "prenorm+rms") -> CpuTransformer:
    sizes = {"embed_dim": 32, "ffn_embed_dim": 64, "attention_heads": 4, "layers": 2}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    connections = {"encoder_connection": "2rskip+ln", "decoder_connection": decoder_connection}
    config = TransformerConfig(
        source_vocabulary=WORDS, target_vocabulary=WORDS, max_target_positions=9, **sides, **connections
    )
    return for_inference(Transformer(config), precision)


MODELS = [model("float32"), model("bfloat16"), model("bfloat16", "sas")]
MODELS += [model("int8")] if library.largest_weight else []


def translate() -> None:
    used = draw.choice(MODELS)
    sentences, length = draw.randint(0, 4), draw.randint(0, 9)
    memory = used.encode(indices(sentences, length, below=WORDS))
    if draw.random() < 0.2:
        memory = Memory(memory.states, tensor(*memory.padding.shape, like=torch.bool))
    state, beams = used.start(memory, attention=draw.random() < 0.5), 1
    for _ in range(draw.randint(1, 40)):
        used.step(indices(sentences, beams, below=WORDS), state)
        parents, staying = indices(sentences, draw.randint(1, 5), below=beams), None
        if draw.random() < 0.2 and sentences:
            staying = indices(draw.randint(0, sentences), below=sentences)
            parents = indices(len(staying), draw.randint(1, 5), below=beams)
        used.reorder(state, parents, staying)
        sentences, beams = parents.shape


def search() -> None:
    used = draw.choice(MODELS)
    sentences, length, beam = draw.randint(0, 4), draw.randint(1, 9), draw.randint(1, 6)
    sampling: dict[str, Any] = {}
    if draw.random() < 0.4:
        sampling = {"sampling": True, "top_k": draw.choice([0, 1, 5, 99]), "top_p": draw.choice([1, 0.9, 0.2, 1e-9])}
    options = SearchOptions(
        beam=beam, nbest=draw.randint(1, beam), min_length=draw.randint(0, 9), max_length_a=draw.choice([0, 2]),
        max_length_b=draw.choice([9, 60]), unknown_penalty=draw.choice([0, 0.5, -0.5, math.inf]),
        temperature=draw.choice([1, 0.7]), no_repeat_ngram=draw.choice([0, 1, 2, 5]),
        token_scores=draw.random() < 0.5, attention=draw.random() < 0.5, **sampling,
    )  # fmt: skip
    special = SpecialTokens()
    if draw.random() < 0.4:
        special = SpecialTokens(*(draw.choice([0, 1, 2, 3, WORDS - 1, WORDS, -1]) for _ in range(3)), start=5)
    find_search(used.device)(
        used, used.encode(torch.randint(WORDS, (sentences, length))), options,
        source_lengths=torch.randint(1, length + 1, (sentences,)), special=special,
        prefix=indices(sentences, draw.randint(0, 5), below=WORDS) if draw.random() < 0.5 else None,
    )  # fmt: skip


def linear_maps() -> None:
    used = draw.choice(MODELS)
    layer = draw.choice(used.model.encoder.layers)
    draw.choice([layer.fc1, layer.fc2, layer.self_attn.q_proj])(tensor(draw.randint(0, 5), draw.choice([32, 64])))
    weight = tensor(draw.randint(1, 70), draw.randint(1, 70))
    native_linear(library, PackedMap(library, weight, None), tensor(3, weight.size(1)))


def losses() -> None:
    rows, words = draw.randint(0, 5), draw.randint(1, 200)
    log_softmax(tensor(rows, words).requires_grad_()).sum().backward()
    cross_entropy_(library, tensor(rows, words), indices(rows, below=words), confidence=0.9, with_gradient=True)


def eight_bits() -> None:
    outputs, inputs = draw.randint(1, 70), draw.randint(1, 70)
    weight, x = tensor(outputs, inputs, like=torch.int8), tensor(draw.randint(0, 5), inputs)
    bias = draw.choice([None, torch.randn(len(weight))])
    native_linear(library, PackedMap8(library, weight, torch.rand(len(weight)), bias), x)


def train() -> None:
    spec = draw.choice(["sas", "sas+rms", "mhc", "hyper", "frac", "attnres", "gated_residual"])
    features = draw.choice([32, 64, 36])
    residuals = Residuals(spec, features, layers=1)
    state = residuals.enter(tensor(draw.randint(0, 9), draw.randint(1, 9), features).requires_grad_())
    for block in (residuals[0].attention, residuals[0].ffn):
        state = block(state, torch.tanh)
    residuals.leave(state).square().sum().backward()


CALLED = [translate, translate, search, search, linear_maps, losses, train]
CALLED += [eight_bits] if library.largest_weight else []
outcomes: Counter[str] = Counter()
for _ in range(calls):
    with torch.inference_mode(draw.random() < 0.5):
        called = draw.choice(CALLED)
        try:
            called()
            outcomes[f"{called.__name__} done"] += 1
        except (TypeError, ValueError, IndexError, RuntimeError, AssertionError) as error:
            outcomes[f"{called.__name__} refused"] += 1
            if "-v" in sys.argv:
                print(called.__name__, type(error).__name__, error)
print(dict(outcomes))
