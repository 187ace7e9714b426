"""Compiles Triton's kernels for an H100, which needs no GPU, and launches none. Run in a process of its own."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from rskip.connections import stream_kernels
from rskip.nn import Residuals

compiled = []
driver.set_active(
    SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda device=0: 0,
        utils=SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": 232448}),
    )
)


def compile_only(self, *args, run=JITFunction.run, **settings):
    kernel = run(self, *args, **{**settings, "warmup": True})
    compiled.extend([self.fn.__name__] if "cubin" in kernel.asm else [])


JITFunction.run = compile_only
stream_kernels._interpreted = True  # takes tensors on the CPU
for spec in sys.argv[1:]:
    residuals = Residuals(spec, 320, layers=1).bfloat16()
    state = residuals.enter(torch.zeros(2, 4, 320, dtype=torch.bfloat16, requires_grad=True))
    residuals.leave(residuals[0].ffn(residuals[0].attention(state, torch.tanh), torch.tanh)).sum().backward()
print(*sorted(set(compiled)))
