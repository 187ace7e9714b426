"""Triton's compiler takes every kernel, for an H100; it needs no GPU. What it does not take, its interpreter may."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from rskip.connections import stream_kernels
from tests.connections.triton_cases import small

pytestmark = pytest.mark.slow
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", int: "i32", float: "fp32"}
READING = {"_weigh", "_mix_inputs", "_weights_gradient", "_values_gradient", "_streams_gradient"}
KERNELS = {"streams": READING | {"_write_tokens", "_write_gradient"}, "depth": {"_attend", "_attend_gradient"}}


def type_of(value):
    if isinstance(value, tuple):
        return tuple(map(type_of, value))
    return TYPES[value.dtype if isinstance(value, torch.Tensor) else type(value)]


@pytest.mark.parametrize("spec", ["mhc", "mhc_lite+rms", "hyper", "attnres"])
def test_the_kernels_compile(spec, monkeypatch):
    jit = pytest.importorskip("triton.runtime.jit")
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = set()

    def run(self, *args, grid, warmup, **options):
        given = {**dict(zip(self.arg_names, args, strict=False)), **options}
        fixed = {each.name: given[each.name] for each in self.params if each.is_constexpr or given[each.name] is None}
        signature = {name: "constexpr" if name in fixed else type_of(given[name]) for name in self.arg_names}
        chosen = {name: value for name, value in options.items() if name not in self.arg_names}
        source = ASTSource(self, signature, {(self.arg_names.index(name),): value for name, value in fixed.items()})
        assert compile(source, target=GPUTarget("cuda", 90, 32), options=chosen).asm["ptx"]
        names.add(self.fn.__name__)

    monkeypatch.setattr(jit.JITFunction, "run", run)
    monkeypatch.setattr(stream_kernels, "_interpreted", True)
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: nullcontext())
    model, x = small(spec, 256).bfloat16(), torch.randn(3, 256, dtype=torch.bfloat16)
    model(x.requires_grad_()).sum().backward()
    assert names == KERNELS["depth" if spec == "attnres" else "streams"]
