"""The parts of a decoding step on CPU that rskip computes in another way than plain PyTorch, side by side.

64 sentences of 4 beams, 256/1024/4, 3 layers, 8,000 words. Both sides of a pair take turns; the ratio is the median of
the rounds'. Prints a table and appends one line to results/decode_kernels.jsonl.

    python benchmarks/decode_kernels.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from measuring.pairs import compare
from measuring.record import append_record
from torch import Tensor, nn

from rskip.generation.candidates import best_candidates, log_normaliser
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.int8_linear import Int8Linear
from rskip.transformer.packed_linear import PackedLinear

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
    """nn.Linear, and ours: packed, and in 8 bits against float32."""
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


def vocabulary() -> list[Part]:
    """Normalising and ranking the logits with PyTorch's functions, and ours."""
    logits, offsets = torch.randn(SENTENCES, BEAM, VOCABULARY), torch.randn(SENTENCES, BEAM)
    scratch = torch.empty_like(logits).view(-1)

    def topk() -> Tensor:
        return (logits + offsets[:, :, None]).view(SENTENCES, -1).topk(2 * BEAM)[0]

    assert torch.equal(topk(), best_candidates(logits, offsets, 2 * BEAM).scores)
    return [
        ("log of the sum: logsumexp, one pass", lambda: logits.logsumexp(-1), lambda: log_normaliser(logits, scratch)),
        ("best 8 continuations: topk, in stripes", topk, lambda: best_candidates(logits, offsets, 2 * BEAM)),
    ]


def beams(dtype: torch.dtype) -> Part:
    """Steps whose beams are reordered: every beam a row whose cache is copied, and slots that a sentence shares."""
    transformer = model(dtype)
    draw = torch.Generator().manual_seed(1)
    source = torch.randint(4, VOCABULARY, (SENTENCES, 24), generator=draw)
    parents = torch.randint(0, BEAM, (STEPS, SENTENCES, BEAM), generator=draw).sort(2)[0]
    memory = transformer.encode(source)
    repeated = memory.reorder(torch.arange(SENTENCES).repeat_interleave(BEAM))
    first = (torch.arange(SENTENCES) * BEAM)[:, None]

    def copied() -> None:
        state = transformer.start(repeated)
        tokens = torch.full((SENTENCES * BEAM, 1), 2)
        for step in range(STEPS):
            transformer.decoder.step(tokens, state)
            rows = (first + parents[step]).view(-1)
            transformer.reorder(state, torch.zeros(len(rows), 1, dtype=torch.int64), rows)

    def shared() -> None:
        state = transformer.start(memory)
        transformer.decoder.step(torch.full((SENTENCES, 1), 2), state)
        transformer.reorder(state, torch.zeros(SENTENCES, BEAM, dtype=torch.int64))
        tokens = torch.full((SENTENCES, BEAM), 2)
        for step in range(1, STEPS):
            transformer.decoder.step(tokens, state)
            transformer.reorder(state, parents[step])

    return f"{STEPS} decoder steps, {str(dtype).removeprefix('torch.')}: copied caches, shared slots", copied, shared


def compiled(dtype: torch.dtype) -> Part:
    """A feed-forward block with its connection, eager and by torch.compile."""
    layer = model(dtype).decoder.decoder_layers()[0]
    x = torch.randn(SENTENCES, BEAM, FEATURES, dtype=dtype)
    faster = torch.compile(layer.feed_forward, dynamic=False)
    name = f"feed-forward block, {str(dtype).removeprefix('torch.')}: eager, torch.compile"
    return name, lambda: layer.feed_forward(x), lambda: faster(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, default=Path("results/decode_kernels.jsonl"))
    args = parser.parse_args()

    types = (torch.float32, torch.bfloat16)
    parts = [*linears(), *vocabulary(), *map(beams, types), *map(compiled, types)]
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
