"""Speed of the parts of a decoding step on CPU in the compiled kernels and in PyTorch. It needs the kernels.

64 sentences with 4 beams; 256 features, FFN dimension 1024, 4 heads, 3 layers; vocabulary size 8,000. The two sides
alternate; the ratio is the median over rounds. Prints a table and appends one line to
study/results/benchmarks/decode_kernels.jsonl.

    python benchmarks/decode_kernels.py [--rounds 9]
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from measuring.pairs import compare
from measuring.record import append_record, benchmark_parser
from torch import Tensor, nn

from rskip.cpu import CpuTransformer, for_inference
from rskip.cpu.linear import Int8Linear, PackedLinear
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.encoder import Memory

SENTENCES, BEAM, FEATURES, INNER, VOCABULARY, STEPS = 64, 4, 256, 1024, 8_000, 24
Part = tuple[str, Callable[[], object], Callable[[], object]]


def model(dtype: torch.dtype) -> Transformer:
    """A random model of this size."""
    sides = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("embed_dim", FEATURES), ("ffn_embed_dim", INNER), ("attention_heads", 4), ("layers", 3))
    }
    torch.manual_seed(1)
    return Transformer(TransformerConfig(VOCABULARY, VOCABULARY, **sides)).to(dtype).eval().requires_grad_(False)


def linears() -> list[Part]:
    """nn.Linear against our packed map, and our map in 8 bits against float32."""
    parts: list[Part] = []
    for outputs, name in ((INNER, "feed-forward map"), (VOCABULARY, "output projection")):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(SENTENCES, BEAM, FEATURES, dtype=dtype)
            plain = nn.Linear(FEATURES, outputs, dtype=dtype)
            packed = PackedLinear(plain)
            label = f"{name}, {str(dtype).removeprefix('torch.')}: nn.Linear, packed"
            parts.append((label, lambda x=x, plain=plain: plain(x), lambda x=x, packed=packed: packed(x)))
            if dtype == torch.float32:
                eight = Int8Linear(plain)
                label = f"{name}: packed float32, int8"
                parts.append((label, lambda x=x, packed=packed: packed(x), lambda x=x, eight=eight: eight(x)))
    return parts


def kernels(dtype: torch.dtype, sentences: int) -> Part:
    """Decoding steps with reordered beams, with PyTorch and with the compiled kernels."""
    plain = model(dtype)
    fast = for_inference(model(dtype), str(dtype).removeprefix("torch."))
    draw = torch.Generator().manual_seed(1)
    source = torch.randint(4, VOCABULARY, (sentences, 24), generator=draw)
    parents = torch.randint(0, BEAM, (STEPS, sentences, BEAM), generator=draw)
    memory = plain.encode(source)
    name = f"{STEPS} decoder steps, {str(dtype).removeprefix('torch.')}, {sentences} × {BEAM}: PyTorch, kernels"
    return name, steps(plain, memory, parents), steps(fast, memory, parents)


def steps(model: Transformer | CpuTransformer, memory: Memory, parents: Tensor) -> Callable[[], None]:
    """All steps."""

    def run() -> None:
        state = model.start(memory)
        model.step(torch.full((parents.size(1), 1), 2), state)
        state.reorder(torch.zeros_like(parents[0]))
        for step in range(1, STEPS):
            model.step(torch.full_like(parents[0], 2), state)
            state.reorder(parents[step])

    return run


def compiled(dtype: torch.dtype) -> Part:
    """A feed-forward block with its connection, eager and with torch.compile."""
    layer = model(dtype).decoder.decoder_layers()[0]
    x = torch.randn(SENTENCES, BEAM, FEATURES, dtype=dtype)
    faster = torch.compile(layer.feed_forward, dynamic=False)
    name = f"feed-forward block, {str(dtype).removeprefix('torch.')}: eager, torch.compile"
    return name, lambda: layer.feed_forward(x), lambda: faster(x)


def main() -> None:
    parser = benchmark_parser(__doc__, "decode_kernels")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()

    types = (torch.float32, torch.bfloat16)
    parts = [*linears(), *map(compiled, types)]
    parts += [kernels(dtype, sentences) for sentences in (SENTENCES, 1) for dtype in types]
    rows = []
    print("| part: one way, the other | one, ms | other, ms | one / other |\n|---|---|---|---|")
    with torch.inference_mode():
        for name, before, now in parts:
            row = {"part": name, **compare(before, now, args.rounds)}
            rows.append(row)
            print(f"| {name} | {row['before_ms']} | {row['now_ms']} | {row['ratio']} |", flush=True)
    append_record(args.output, "decode_kernels", {"rounds": args.rounds, "rows": rows})
    print(json.dumps({row["part"]: row["ratio"] for row in rows}))


if __name__ == "__main__":
    main()
