"""Speed of the parts of a training step on CPU that rskip computes differently from PyTorch or fairseq.

It runs forward and backward passes of attention, dropout and loss with the sizes of one Multi30k batch of the tiny
model. The two sides alternate; the ratio is the median over rounds. Prints a table and appends one line to
study/results/benchmarks/cpu_kernels.jsonl.

    python benchmarks/cpu_kernels.py [--rounds 9]
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from measuring.pairs import compare
from measuring.record import append_record, benchmark_parser
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from rskip.cpu.loss import cross_entropy_kernel
from rskip.transformer.dropout import Dropout
from rskip.transformer.label_smoothing import label_smoothed_cross_entropy

BATCH, LENGTH, HEADS, FEATURES, VOCABULARY = 272, 15, 4, 128, 10_000
Step = Callable[[], None]


def attention(dtype: torch.dtype) -> tuple[Step, Step]:
    """Fused attention as PyTorch selects it, and SDPA's math path, with a padding mask, forward and backward."""
    size = (BATCH, HEADS, LENGTH, FEATURES // HEADS)
    query, key, value = (torch.randn(size, dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.ones(BATCH, 1, 1, LENGTH, dtype=torch.bool)
    mask[::3, ..., -3:] = False

    def fused() -> None:
        y = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        y.backward(torch.ones_like(y))

    def plain() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            fused()

    return fused, plain


def dropout(dtype: torch.dtype) -> tuple[Step, Step]:
    """PyTorch's dropout and ours."""
    x = torch.randn(BATCH, LENGTH, FEATURES, dtype=dtype, requires_grad=True)
    ours = Dropout(0.3)
    return lambda: functional.dropout(x, 0.3).backward(x.detach()), lambda: ours(x).backward(x.detach())


def loss(dtype: torch.dtype) -> tuple[Step, Step]:
    """Output projection and label smoothing, fairseq's and ours."""
    features = torch.randn(BATCH, LENGTH, FEATURES, dtype=dtype, requires_grad=True)
    weight = (torch.randn(VOCABULARY, FEATURES) / 11).to(dtype).requires_grad_()
    target = torch.randint(4, VOCABULARY, (BATCH, LENGTH))
    target[::3, -3:] = 1

    def fairseqs() -> None:
        log_probabilities = (features @ weight.t()).log_softmax(-1, dtype=torch.float32).view(-1, VOCABULARY)
        label_smoothed_nll_loss(log_probabilities, target.view(-1), 0.1, ignore_index=1)[0].backward()

    def ours() -> None:
        label_smoothed_cross_entropy(
            features, weight, target, epsilon=0.1, padding_index=1, find_kernel=cross_entropy_kernel
        )[0].backward()

    return fairseqs, ours


def main() -> None:
    parser = benchmark_parser(__doc__, "cpu_kernels")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()

    rows = []
    print("| part, forward and backward | before, ms | now, ms | before / now |\n|---|---|---|---|")
    for part in (attention, dropout, loss):
        for dtype in (torch.float32, torch.bfloat16):
            row = {
                "part": part.__name__,
                "dtype": str(dtype).removeprefix("torch."),
                **compare(*part(dtype), args.rounds),
            }
            rows.append(row)
            print(f"| {row['part']}, {row['dtype']} | {row['before_ms']} | {row['now_ms']} | {row['ratio']} |")
    append_record(args.output, "cpu_kernels", {"rounds": args.rounds, "rows": rows})
    print(json.dumps({f"{row['part']}_{row['dtype']}": row["ratio"] for row in rows}))


if __name__ == "__main__":
    main()
