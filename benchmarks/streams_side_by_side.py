"""The cost of streams, in one process: rskip beside transformers and hyper-connections.

    pip install --no-deps --target FOLDER hyper-connections einops torch-einops-utils
    PYTHONPATH=.:FOLDER python benchmarks/streams_side_by_side.py [--features 128 512] [--rounds 9]

One sublayer is a connection with 4 streams around an RMSNorm and tanh; the stack has 4 layers of attention and FFN in
a Transformer's shape. Forward and backward passes of all implementations alternate, in float32 on one thread, and with
the first number of features also those of sublayers that torch.compile compiled, where PyTorch computes rskip's. It
prints the medians, operator calls of the sublayer (views are not counted), and what a forward pass of
the sublayer keeps for the backward pass, in values per token and feature. It appends one JSON line to
study/results/benchmarks/streams_side_by_side.jsonl, whose last line docs/costs.md shows. x-transformers is not among
them: R of its hyper-connections (2.31) is Sinkhorn's result for matrices with one row, which is constant.
"""

from __future__ import annotations

import copy
import os
import statistics
from collections.abc import Callable
from functools import partial
from importlib import import_module, metadata
from types import SimpleNamespace
from typing import Any

import torch
from measuring.record import append_record, benchmark_parser
from measuring.rounds import seconds
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rskip.comparison.plan import kept_bytes
from rskip.connections import stream_kernels
from rskip.nn import Residuals

STREAMS, LAYERS, LENGTH = 4, 4, 64
SENTENCES = {128: 12, 512: 16}
IMPLEMENTATIONS = (
    "rskip prenorm+rms", "rskip mhc+rms", "rskip mhc+rms in PyTorch", "transformers DeepSeek-V4",
    "hyper-connections mHC", "rskip mhc+rms:residual=identity", "transformers Hy4", "rskip hyper+rms",
    "hyper-connections HC", "rskip gated_residual", "transformers Qwen4-Exp",
)  # fmt: skip

Branch = Callable[[Tensor], Tensor]


def _transformers(connection: Any, branch: Branch, h: Tensor) -> Any:
    if isinstance(connection, _Flat):
        given, _, gates = connection(h)
        return torch.addcmul(h, gates.unsqueeze(-1), branch(given).unsqueeze(-2))
    post, *comb, given = connection(h)
    return post.unsqueeze(-1) * branch(given).unsqueeze(-2) + (comb[0].mT @ h if comb else h)


def _hyper_connections(connection: Any, branch: Branch, h: Tensor) -> Any:
    given, add = connection(h)
    return add(branch(given))


class _Flat(nn.Module):
    """Qwen4-Exp's module, which takes streams as one row."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, h: Tensor) -> Any:
        return self.module(h.flatten(-2))


class Stack(nn.Module):
    """4 layers with one implementation's connections."""

    def __init__(self, name: str, features: int) -> None:
        super().__init__()
        library, variant, *_ = name.split(" ")
        self.kernels, count = not name.endswith("in PyTorch"), 2 * LAYERS
        self.enter: Any = lambda x: x.unsqueeze(-2).expand(*x.shape[:-1], STREAMS, -1).contiguous()
        self.leave: Any = lambda h: h.sum(-2)
        connections: list[Any]
        if library == "rskip":
            residuals = Residuals(variant, features, layers=LAYERS)
            connections = [each for layer in residuals for each in (layer.attention, layer.ffn)]
            self.enter, self.leave = residuals.enter, residuals.leave
            self.join = lambda residual, branch, h: residual(h, branch)
        elif variant == "Qwen4-Exp":
            code = import_module("transformers.models.qwen4_exp.modeling_qwen4_exp")
            config = SimpleNamespace(hc_count=STREAMS, hidden_size=features, hc_lowrank=32, rms_norm_eps=1e-6)
            connections = [_Flat(code.Qwen4ExpTextGatedResidual(config, each < count)) for each in range(count + 1)]
            self.leave, self.join = connections.pop(), _transformers
        elif library == "transformers":
            model, prefix = ("deepseek_v4", "DeepseekV4") if variant == "DeepSeek-V4" else ("hy_v4", "HYV4")
            sizes = {"hc_mult": STREAMS, "hc_sinkhorn_iters": 20, "hidden_size": features, "rms_norm_eps": 1e-6}
            config = SimpleNamespace(**sizes, hc_eps=1e-6, hc_magnitude=2.0)
            kind = getattr(import_module(f"transformers.models.{model}.modeling_{model}"), f"{prefix}HyperConnection")
            connections, self.join = [kind(config) for _ in range(count)], _transformers
            for each in (parameter for connection in connections for parameter in connection.parameters()):
                nn.init.normal_(each, std=0.02)
        else:
            code = import_module(f"hyper_connections.{'mHCv2' if variant == 'mHC' else 'hyper_connections'}")
            build, self.enter, self.leave = code.get_init_and_expand_reduce_stream_functions(STREAMS, dim=features)
            connections, self.join = [build(layer_index=index) for index in range(count)], _hyper_connections
        self.connections = nn.ModuleList(connections)
        has_norm = library == "rskip" or variant == "Qwen4-Exp"  # of the branch's input
        self.norms = nn.ModuleList(nn.Identity() if has_norm else nn.RMSNorm(features) for _ in range(count))
        self.attention = nn.ModuleList(nn.MultiheadAttention(features, 4, batch_first=True) for _ in range(LAYERS))
        maps = nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features)
        self.ffn = nn.ModuleList(nn.Sequential(*copy.deepcopy(maps)) for _ in range(LAYERS))

    def block(self, number: int, branch: Branch, h: Tensor) -> Tensor:
        return self.join(self.connections[number], lambda given: branch(self.norms[number](given)), h)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        for layer, (attention, ffn) in enumerate(zip(self.attention, self.ffn, strict=True)):
            h = self.block(2 * layer, lambda x, of=attention: of(x, x, x, need_weights=False)[0], h)  # type: ignore[misc]
            h = self.block(2 * layer + 1, ffn, h)
        return self.leave(h)


class _Calls(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not function.is_view
        return function(*args, **(kwargs or {}))


def measure(features: int, rounds: int, compiled: bool) -> list[dict[str, Any]]:
    """Medians of alternating passes, and counts, of each implementation."""
    x, steps, rows = torch.randn(SENTENCES[features], LENGTH, features), [], []
    for name in IMPLEMENTATIONS:
        torch.manual_seed(0)
        stack = Stack(name, features)
        h = stack.enter(x).detach().contiguous().requires_grad_()

        def run(of: Callable[[], Tensor], kernels: bool = stack.kernels) -> None:
            stream_kernels._off = not kernels
            of().square().mean().backward()

        def sublayer(stack: Stack = stack, h: Tensor = h) -> Tensor:
            return stack.block(1, torch.tanh, h)

        steps += [partial(run, sublayer), partial(run, partial(stack, x))]
        if compiled:
            block = torch.compile(stack.block)
            steps.append(partial(run, partial(block, 1, torch.tanh, h), False))
        stream_kernels._off = not stack.kernels
        kept = kept_bytes(stack, sublayer) / (4 * x.numel())
        run(sublayer)
        with _Calls() as calls:
            run(sublayer)
        rows.append({"features": features, "name": name, "calls": calls.count, "kept": round(kept, 2)})
    times = [[seconds(step) for step in steps] for _ in range(1 + rounds)][1:]
    medians = [round(1000 * statistics.median(each), 1) for each in zip(*times, strict=True)]
    for number, row in enumerate(rows):
        names = ["sublayer_ms", "stack_ms", "compiled_ms"][: 2 + compiled]
        row |= dict(zip(names, medians[len(names) * number :], strict=False))
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return rows


def main() -> None:
    parser = benchmark_parser(__doc__, "streams_side_by_side")
    parser.add_argument("--features", type=int, nargs="+", choices=SENTENCES, default=[*SENTENCES])
    parser.add_argument("--rounds", type=int, default=9, help="number of timed passes of each (default: 9)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = len(IMPLEMENTATIONS)  # all compile the same function
    rows = [row for features in args.features for row in measure(features, args.rounds, features == args.features[0])]
    versions = {name: metadata.version(name) for name in ("transformers", "hyper-connections")}
    values = {"rounds": args.rounds, "load": round(os.getloadavg()[0], 1), "libraries": versions, "rows": rows}
    append_record(args.output, "streams_side_by_side", values)


if __name__ == "__main__":
    main()
