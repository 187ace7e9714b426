"""Times of Triton's kernels for streams and attention over depth, next to what memory allows.

    python benchmarks/gpu_kernels.py [--rounds 7] [--tokens 16384] [--only mhc attnres]

One connection around a branch that returns its input, forward and backward, in bfloat16 with 1,024 and 4,096 features:
the kernels, PyTorch (as with RSKIP_KERNELS=0) and, if liger-kernel is installed, Liger's kernels for mhc and attnres,
with the branch's norm by PyTorch. The limit is the time in which a copy moves as many bytes as the kernels count
(rskip/connections/triton_streams.py); "of it" is the limit divided by the kernels' time. Systems alternate; times are
medians over rounds, and memory is the peak. On a CPU PyTorch alone is timed, to test this program. Prints a table and
appends one JSON line to study/results/benchmarks/gpu_kernels.jsonl.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
from measuring.gpu import named_device, peak_memory, synchronise
from measuring.record import append_record, benchmark_parser
from measuring.rounds import WARM_UP, take_turns
from torch import Tensor

from rskip.connections import Place, build_connection, build_stack_connection, parse_connection, stream_kernels
from rskip.connections.stream_kernels import kernels_for

CONNECTIONS = (
    "mhc+rms", "mhc+rms:residual=identity", "mhc+rms:streams=2", "mhc+rms:streams=8", "mhc_lite+rms", "hyper+rms",
    "frac+rms", "attnres+rms",
)  # fmt: skip
SOURCES = 8  # tensors that attnres attends to at this position
PLACE = Place("decoder", "ffn", 28, 32, 14, 16)
Step = Callable[[], object]
stream_kernels.on_gpu = True


def ours(spec: str, features: int, tokens: int, device: torch.device, dtype: torch.dtype) -> tuple[Step, int]:
    """A step of one connection, and the elements that its kernels read and write."""
    connection = build_connection(parse_connection(spec), features, place=PLACE).to(device, dtype)
    x = torch.randn(tokens, features, device=device, dtype=dtype)
    name = spec.partition("+")[0]
    if name == "attnres":
        state: Any = tuple(torch.randn_like(x).requires_grad_() for _ in range(connection.values))
        leaves, elements = state, features * (4 * len(state) + 2)
    else:
        h = build_stack_connection(parse_connection(spec), features).enter(x) if name != "frac" else x
        state = (h + 0.1 * torch.randn_like(h)).detach().requires_grad_()
        leaves, n = (state,), 1 if name == "frac" else connection.streams
        elements = (10 * n + 6) * features

    def step() -> None:
        given, kept = connection.before(state)
        new = connection.after(kept, given)
        torch.autograd.backward(new, torch.ones_like(new)) if isinstance(new, Tensor) else given.sum().backward()
        for leaf in (*leaves, *connection.parameters()):
            leaf.grad = None

    return step, elements * tokens


def ligers(spec: str, features: int, tokens: int, device: torch.device, dtype: torch.dtype) -> Step | None:
    """A step of Liger's kernels for the same; None if it has none."""
    if spec not in ("mhc+rms", "mhc+rms:streams=2", "mhc+rms:streams=8", "attnres+rms"):
        return None
    try:
        from liger_kernel.transformers import functional
    except ImportError:
        return None
    norm = torch.nn.RMSNorm(features).to(device, dtype)
    if spec == "attnres+rms":
        values = [torch.randn(1, tokens, features, device=device, dtype=dtype).requires_grad_() for _ in range(SOURCES)]
        query, gain = torch.randn(2, features, device=device, dtype=dtype).requires_grad_().unbind()

        def step() -> None:
            norm(functional.liger_attn_res(values, query, gain)).sum().backward()
            for each in values:
                each.grad = None

        return step
    n = int(spec.partition("streams=")[2] or 4)
    h = torch.randn(tokens, n, features, device=device, dtype=dtype).requires_grad_()
    phi, bias = torch.randn(n * features, n * (n + 2), device=device) / 100, torch.zeros(n * (n + 2), device=device)
    scales = [torch.tensor(0.01, device=device).requires_grad_() for _ in range(3)]
    learned = [h, phi.to(dtype).requires_grad_(), bias.requires_grad_(), *scales]

    def step_of_streams() -> None:
        read, add, mix = functional.liger_mhc_coeffs(*learned)
        f = norm(functional.liger_mhc_pre(h, read))
        new = functional.liger_mhc_post_res(h, f, add, mix)
        new.backward(torch.ones_like(new))
        for each in learned:
            each.grad = None

    return step_of_streams


def copy_bandwidth(device: torch.device, mib: int) -> float:
    """Bytes per second that a copy reads and writes."""
    x = torch.empty(mib * 2**20, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    return 2 * x.numel() / min(timed(lambda: y.copy_(x), device) for _ in range(10))


def timed(step: Step, device: torch.device) -> float:
    synchronise(device)
    start = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - start


def main() -> None:
    parser = benchmark_parser(__doc__, "gpu_kernels")
    parser.add_argument("--device", type=named_device, default="cuda")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--features", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--only", nargs="+", choices=[spec.partition("+")[0] for spec in CONNECTIONS])
    args = parser.parse_args()
    device, gpu = args.device, args.device.type == "cuda"
    dtype = torch.bfloat16 if gpu else torch.float32
    bandwidth = copy_bandwidth(device, 2048 if gpu else 64)
    rows = []
    print(f"a copy moves {bandwidth / 1e9:.0f} GB/s\n")
    print("| connection | features | system | ms | of it | MiB |\n|" + "---|" * 6)
    for features in args.features:
        for spec in CONNECTIONS:
            if args.only and spec.partition("+")[0] not in args.only:
                continue
            setting = (spec, features, args.tokens, device, dtype)
            step, elements = ours(*setting)
            limit = elements * dtype.itemsize / bandwidth

            def eager(step: Step = step) -> None:
                with mock.patch.object(stream_kernels, "_off", True):
                    step()

            systems = {"kernels": step, "PyTorch": eager, "Liger": ligers(*setting)}
            if not gpu or kernels_for(torch.empty(1, features, device=device, dtype=dtype)) is None:
                del systems["kernels"]
            calls = {name: partial(timed, each, device) for name, each in systems.items() if each}
            take_turns(calls, WARM_UP, rest=0)
            peaks = {}
            for name, call in calls.items():
                with peak_memory(device) as peak:
                    call()
                peaks[name] = peak.mib
            for name, found in take_turns(calls, args.rounds, rest=0).items():
                seconds = statistics.median(found)
                row = {"connection": spec, "features": features, "system": name, "ms": round(1e3 * seconds, 4)}
                rows.append({**row, "limit_ms": round(1e3 * limit, 4), "peak_mib": peaks[name]})
                print(f"| {spec} | {features} | {name} | {1e3 * seconds:.3f} | {limit / seconds:.2f} | {peaks[name]} |")
    values = {"tokens": args.tokens, "dtype": str(dtype), "copy_gb_per_s": round(bandwidth / 1e9), "rows": rows}
    append_record(args.output, "gpu_kernels", values)


if __name__ == "__main__":
    main()
