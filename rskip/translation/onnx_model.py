"""Exports a Transformer as ONNX graphs with all files that a runtime needs. Needs the extra `onnx`.

`onnx_decoder` describes the inputs and outputs of the graphs, and the names of dimensions.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.export import Dim

from rskip.connections import Connection
from rskip.extras import extra
from rskip.files.checksum import sha256_file
from rskip.settings.check import to_plain
from rskip.text import Dictionary, TextPipeline, Tokenizer
from rskip.transformer import Transformer
from rskip.transformer.attention import MultiHeadAttention
from rskip.transformer.embedding import EmbeddingModule
from rskip.transformer.positions import token_positions
from rskip.transformer.undrawn import undrawn
from rskip.transformer.value_residual import FirstValues
from rskip.translation.onnx_decoder import OnnxTransformer
from rskip.translation.onnx_settings import ENCODER, FORMAT, ONNX_FILE, STEP, OnnxSettings
from rskip.translation.search import TorchModel

with extra("onnx", what="export to ONNX"):
    import onnx
    import onnxruntime  # noqa: F401 - what is missing is told before any work
    import onnxscript  # noqa: F401
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

OPSET = 18
_TOLERANCE = 1e-4  # maximum error of logits, relative to the largest one if that is above 1
_BATCH, _BEAMS, _ROWS, _PAST, _SOURCE = map(Dim, ("batch", "beams", "rows", "past", "source"))


def write_onnx(
    model: Transformer,
    folder: Path,
    tokenizer: Tokenizer,
    *,
    precision: Literal["float32", "int8"] = "float32",
) -> None:
    """Writes the model into an existing empty folder for `Translator.from_pretrained`.

    :param precision: precision of the linear maps. "int8": weights in 8 bits, with dynamic quantisation of activations.
    """
    with undrawn():
        plain = Transformer(model.config)  # the model's own linear maps may be packed
    plain.load_state_dict(model.state_dict())
    plain.requires_grad_(False).eval()
    _export(_EncoderGraph(plain), folder / ENCODER)
    _export(_StepGraph(plain), folder / STEP)
    tokenizer.save(folder)

    config = plain.config
    bounded = not config.no_token_positional_embeddings  # the table of positions limits lengths
    settings = OnnxSettings(
        opset=OPSET,
        precision="float32",
        source_language=tokenizer.source_language,
        target_language=tokenizer.target_language,
        text="pipeline" if isinstance(tokenizer.text, TextPipeline) else "tokens",
        encoder_connection=config.encoder_connection,
        decoder_connection=config.decoder_connection,
        source_vocabulary=config.source_vocabulary,
        target_vocabulary=config.target_vocabulary,
        layers=config.decoder_layers,
        heads=config.decoder_attention_heads,
        head_features=config.decoder_embed_dim // config.decoder_attention_heads,
        max_source_positions=config.max_source_positions if bounded else None,
        max_target_positions=config.max_target_positions if bounded else None,
        trained_source_positions=config.max_source_positions,
        first_position=config.padding_index + 1,
        padding_index=config.padding_index,
        start_index=Dictionary.bos_index if config.start == "begin" else Dictionary.eos_index,
        end_index=Dictionary.eos_index,
        unknown_index=Dictionary.unk_index,
        files={ENCODER: "", STEP: ""},
    )
    check_equal(plain, OnnxTransformer(folder, settings))
    if precision == "int8":
        for name in (ENCODER, STEP):
            quantise(folder / name)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}
    content = {"format": FORMAT, **to_plain(replace(settings, precision=precision, files=sums))}
    (folder / ONNX_FILE).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class _EncoderGraph(nn.Module):
    """Computes the memory's mask, keys and values, which are constant over steps, from source tokens."""

    outputs: list[str]

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.config, self.encoder = model.config, model.encoder
        self.attention = nn.ModuleList(_Projection(layer.self_attn, "qkv") for layer in _layers(model.encoder))
        memory = [layer.encoder_attn for layer in model.decoder.decoder_layers()]
        self.memory = nn.ModuleList(_Projection(each, "kv") for each in memory)
        self.outputs = ["memory_mask", *(f"memory_{name}" for name in _names(len(memory)))]

    def inputs(self) -> dict[str, tuple[Any, Any]]:
        """Each input with its dynamic dimensions; the values are examples."""
        return {"source": (torch.full((3, 7), 4), {0: _BATCH, 1: _SOURCE})}

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        encoder = self.encoder
        padding_index = self.config.padding_index
        x = _embed(encoder, source, token_positions(source, padding_index))  # (B, S, C)
        hidden = source.eq(padding_index)[:, None, None]
        mask = torch.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden, -math.inf)  # (B, 1, 1, S)
        passed = encoder.stack_connection.enter(x)
        first = FirstValues()
        for layer, projection in zip(_layers(encoder), self.attention, strict=True):
            x, kept = layer.self_attn_connection.before(passed)
            projected = projection(x, first)  # (B, S, H, D)
            query, key, value = (each.transpose(1, 2) for each in projected)  # (B, H, S, D)
            attended = _weights(query, key, mask) @ value  # (B, H, S, D)
            attended = layer.self_attn.output(attended.transpose(1, 2).flatten(2))
            passed = layer.feed_forward(layer.self_attn_connection.after(kept, attended))
        x = encoder.stack_connection.leave(passed)
        x = x if encoder.layer_norm is None else encoder.layer_norm(x)
        memory = [each.transpose(1, 2) for projection in self.memory for each in projection(x)]
        return mask, *memory


class _StepGraph(nn.Module):
    """Computes the next position of each beam. It needs no target mask, since keys and values are stored per row."""

    outputs: list[str]

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.config, self.decoder = model.config, model.decoder
        layers = model.decoder.decoder_layers()
        self.attention = nn.ModuleList(_Projection(layer.self_attn, "qkv") for layer in layers)
        self.queries = nn.ModuleList(_Projection(layer.encoder_attn, "q") for layer in layers)
        self.outputs = ["logits", "attention", *(f"present_{name}" for name in _names(len(layers)))]

    def inputs(self) -> dict[str, tuple[Any, Any]]:
        """Each input with its dynamic dimensions; the values are examples."""
        config = self.config
        heads, features = config.decoder_attention_heads, config.decoder_embed_dim // config.decoder_attention_heads
        count = 2 * config.decoder_layers

        def several(*shape: int) -> list[Tensor]:
            return [torch.zeros(shape) for _ in range(count)]  # the same tensor twice would become one input

        return {
            "tokens": (torch.full((3, 5), 4), {0: _BATCH, 1: _BEAMS}),
            "position": (torch.tensor([4]), {}),
            "parents": (torch.zeros(3, 5, dtype=torch.long), {0: _BATCH, 1: _BEAMS}),
            "past": (several(6, heads, 4, features), [{0: _ROWS, 2: _PAST}] * count),
            "memory_mask": (torch.zeros(3, 1, 1, 7), {0: _BATCH, 3: _SOURCE}),
            "memory": (several(3, heads, 7, features), [{0: _BATCH, 2: _SOURCE}] * count),
        }

    def forward(
        self,
        tokens: Tensor,
        position: Tensor,
        parents: Tensor,
        past: list[Tensor],
        memory_mask: Tensor,
        memory: list[Tensor],
    ) -> tuple[Tensor, ...]:
        decoder = self.decoder
        rows = parents.flatten()
        x = _embed(decoder, tokens, position)  # (B, K, C)
        present: list[Tensor] = []
        weights = x
        passed = decoder.stack_connection.enter(x)
        first = FirstValues()
        for number, layer in enumerate(decoder.decoder_layers()):
            of_layer = slice(2 * number, 2 * number + 2)
            x, kept = layer.self_attn_connection.before(passed)
            projected = self.attention[number](x, first)  # (B, K, H, D)
            query, *new = (each.flatten(0, 1).unsqueeze(2) for each in projected)  # (R, H, 1, D)
            key, value = (
                torch.cat([before.index_select(0, rows), each], 2)
                for before, each in zip(past[of_layer], new, strict=True)
            )  # (R, H, T + 1, D)
            present += key, value
            attended = _weights(query, key) @ value
            attended = layer.self_attn.output(attended.reshape(x.shape))
            x, kept = layer.encoder_attn_connection.before(layer.self_attn_connection.after(kept, attended))

            query = self.queries[number](x)[0].transpose(1, 2)  # (B, H, K, D)
            key, value = memory[of_layer]
            weights = _weights(query, key, memory_mask)  # (B, H, K, S)
            attended = layer.encoder_attn.output((weights @ value).transpose(1, 2).flatten(2))
            passed = layer.feed_forward(layer.encoder_attn_connection.after(kept, attended))
        x = decoder.stack_connection.leave(passed)
        x = x if decoder.layer_norm is None else decoder.layer_norm(x)
        return decoder.output_projection(x), weights.mean(1), *present


def _names(layers: int) -> list[str]:
    return [f"{kind}_{layer}" for layer in range(layers) for kind in ("key", "value")]


def _layers(stack: Any) -> list[Any]:
    return list(stack.layers)


class _Projection(nn.Module):
    """The projections "q", "k" and "v" as one map, for fewer and larger products. Queries are scaled by 1/√D."""

    def __init__(self, attention: MultiHeadAttention, parts: str) -> None:
        super().__init__()
        self.parts, self.heads = parts, attention.heads
        norms = {"q": attention.query_norm, "k": attention.key_norm, "v": attention.value_norm}
        self.value_residual = attention.value_residual
        self.norms = nn.ModuleDict({part: norm for part, norm in norms.items() if norm is not None})
        linears = [getattr(attention, f"{part}_proj") for part in parts]
        features = attention.q_proj.out_features
        self.scale = 1 / math.sqrt(features / attention.heads)
        scales = [self.scale if part == "q" and part not in self.norms else 1.0 for part in parts]
        factors = torch.tensor(scales).repeat_interleave(features)
        self.joined = nn.utils.skip_init(nn.Linear, linears[0].in_features, len(parts) * features)
        weight, bias = (torch.cat([getattr(each, name) for each in linears]) for name in ("weight", "bias"))
        self.joined.weight = nn.Parameter(weight * factors[:, None], requires_grad=False)
        self.joined.bias = nn.Parameter(bias * factors, requires_grad=False)

    def forward(self, x: Tensor, first: FirstValues | None = None) -> list[Tensor]:
        """The projections of x (B, T, C), by head (B, T, H, D). `first` has the first layer's values."""
        projected = [each.unflatten(-1, (self.heads, -1)) for each in self.joined(x).chunk(len(self.parts), -1)]
        for number, part in enumerate(self.parts):
            if part in self.norms:
                projected[number] = self.norms[part](projected[number]) * (self.scale if part == "q" else 1.0)
        if self.value_residual is not None:
            assert first is not None
            projected[-1] = self.value_residual(projected[-1], first)
        return projected


def _embed(stack: EmbeddingModule, tokens: Tensor, positions: Tensor) -> Tensor:
    x = stack.embed_tokens(tokens) * stack.embed_scale
    if stack.embed_positions is not None:
        x = x + stack.embed_positions(positions)
    return x if stack.layernorm_embedding is None else stack.layernorm_embedding(x)


def _weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = query @ key.transpose(2, 3)
    return (scores if mask is None else scores + mask).softmax(-1)


def _export(graph: _EncoderGraph | _StepGraph, path: Path) -> None:
    inputs = graph.inputs()
    examples = {name: example for name, (example, _) in inputs.items()}
    names = [
        name if isinstance(example, Tensor) else f"{name}_{part}"
        for name, example in examples.items()
        for part in (_names(len(example) // 2) if isinstance(example, list) else [""])
    ]
    try:
        if any(isinstance(each, Connection) and each.splits_inputs for each in graph.modules()):
            raise torch.onnx.OnnxExporterError("keys and values read inputs of their own")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph.eval(),
                kwargs=examples,
                input_names=names,
                output_names=graph.outputs,
                dynamic_shapes={name: dimensions for name, (_, dimensions) in inputs.items()},
                opset_version=OPSET,
                dynamo=True,
                optimize=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        config = graph.config
        connections = ", ".join(dict.fromkeys([config.encoder_connection, config.decoder_connection]))
        reason = shorten(str(error.__cause__ or error).strip().partition("\n")[0], 100)
        raise ValueError(f"a model of {connections} can't be exported to ONNX: {reason}") from error
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces with paths of this machine
    program.save(path)


def check_equal(model: Transformer, exported: OnnxTransformer) -> None:
    """Compares four steps of two sentences, with reordered beams. One sentence leaves the batch."""
    config = model.config
    generator = torch.Generator().manual_seed(1)

    def drawn(vocabulary: int, *shape: int) -> Tensor:
        return torch.randint(min(config.padding_index + 1, vocabulary - 1), vocabulary, shape, generator=generator)

    source = drawn(config.source_vocabulary, 2, min(9, config.max_source_positions))
    source[1, -1] = config.padding_index
    parents = ([[0, 0, 0], [0, 0, 0]], [[2, 0, 1], [1, 1, 0]], [[1, 2, 2]])
    sentences = (None, None, torch.tensor([1]))
    with torch.inference_mode():
        decoders: tuple[TorchModel, ...] = model, exported
        states = [(each, each.start(each.encode(source))) for each in decoders]
        tokens = torch.full((2, 1), Dictionary.eos_index)
        for step in range(min(4, config.max_target_positions)):
            expected, found = (each.step(tokens, state) for each, state in states)
            error = (expected - found).abs().max().item() / max(1.0, expected.abs().max().item())
            if not error <= _TOLERANCE:
                raise ValueError(f"the ONNX graphs' logits differ from the model's by {error:.1e}: please report it")
            if step < 3:
                kept = torch.tensor(parents[step])
                for each, state in states:
                    each.reorder(state, kept, sentences[step])
                tokens = drawn(config.target_vocabulary, *kept.shape)


def quantise(path: Path) -> None:
    """Quantises linear maps to 8 bits, with weights in 7 bits: without VNNI, two 8-bit products overflow 16 bits."""
    folded = path.with_suffix(".folded.onnx")  # with all weights as constants
    quant_pre_process(path, folded, skip_symbolic_shape=True, skip_onnx_shape=True)
    quantize_dynamic(
        folded, path, op_types_to_quantize=["MatMul"], per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
    )
    folded.unlink()
    graph = onnx.load(path)
    used = {node.domain for node in graph.graph.node}
    for opset in [each for each in graph.opset_import if each.domain not in used]:
        graph.opset_import.remove(opset)  # onnxruntime lists all operator sets that it knows
    onnx.save(graph, path)
