"""Packed and 8-bit linear maps, and models in each precision, against float32."""

from __future__ import annotations

import copy
import os
import pickle
import platform
import subprocess
import sys

import pytest
import torch
from torch import nn

from rskip.cpu import CpuTransformer, for_inference, precision
from rskip.cpu.library import Found, find_library
from rskip.cpu.linear import Int8Linear, PackedLinear, largest_int8_weight
from rskip.cpu.precision import PRECISIONS, set_precision

needs_int8 = pytest.mark.skipif(not largest_int8_weight(), reason="no 8-bit products here")
LARGEST = [largest for largest in (64, 127) if largest <= largest_int8_weight()]


def linear(inputs, outputs, *, bias=True):
    torch.manual_seed(3)
    return nn.Linear(inputs, outputs, bias=bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 7), (3, 40, 7), (20_000, 7)], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)], ids=str)
def test_packed_linear_is_the_linear_map(shape, dtype, tolerance, bias):
    plain = linear(7, 33, bias=bias)
    x = torch.randn(shape)
    packed = PackedLinear(copy.deepcopy(plain).to(dtype))
    with torch.no_grad():
        torch.testing.assert_close(packed(x.to(dtype)).float(), plain(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("largest", LARGEST)
def test_int8_linear_is_within_half_a_step_of_each_factor(largest, bias):
    """|error| <= sum over the inputs of |w| s_x / 2 + |x| s_w / 2 + s_x s_w / 4."""
    plain = linear(50, 33, bias=bias)
    x = torch.randn(2, 40, 50) * torch.logspace(-3, 3, 40)[:, None]
    with torch.no_grad():
        exact, found = plain(x), Int8Linear(plain, largest)(x)
    step_x = x.abs().amax(-1, keepdim=True) / find_library().library.largest_row
    step_w = plain.weight.detach().abs().amax(1) / largest
    bound = (plain.weight.detach().abs().sum(1) * step_x + x.abs().sum(-1, keepdim=True) * step_w) / 2
    bound = bound + 50 * step_x * step_w / 4 + 1e-5 * exact.abs().clamp(min=1)
    assert ((found - exact).abs() <= bound).all()


@pytest.mark.parametrize("largest", LARGEST)
def test_int8_sums_of_extreme_products_are_exact(largest):
    signs = torch.tensor([1.0, -1.0])
    plain = nn.Linear(200, 2, bias=False)
    with torch.no_grad():
        plain.weight.copy_(signs[:, None].expand(-1, 200))
        found = Int8Linear(plain, largest)(signs[:, None].expand(-1, 200))
    torch.testing.assert_close(found, 200 * signs[:, None] * signs)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("float32", 1e-5), ("bfloat16", 0.1), pytest.param("int8", 0.1, marks=needs_int8)],
)
def test_model_in_each_precision(build, source, prefix, name, tolerance, monkeypatch):
    monkeypatch.setattr(precision, "FEWEST_INT8_WEIGHTS", 0)
    model = build("2rskip+ln").float()
    exact = model(source, prefix).detach()
    converted = set_precision(model, name)
    found = converted(source, prefix)
    assert (found.float() - exact).norm() <= tolerance * exact.norm()
    assert not torch.equal(found.float(), exact)  # it was computed in another way


def test_packed_weights_are_those_that_were_loaded_last():
    packed, other = PackedLinear(linear(16, 33)), nn.Linear(16, 33)
    packed.load_state_dict(other.state_dict())
    x = torch.randn(20_000, 16)
    with torch.no_grad():
        torch.testing.assert_close(packed(x), other(x))


@pytest.mark.parametrize("kind", [PackedLinear, pytest.param(Int8Linear, marks=needs_int8)])
def test_copies_and_pickles_compute_the_same(kind):
    original = kind(linear(16, 33))
    x = torch.randn(20_000, 16)
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(original)(x), original(x))
        assert torch.equal(pickle.loads(pickle.dumps(original))(x), original(x))


@needs_int8
def test_int8_after_another_precision(build, source, prefix, monkeypatch):
    monkeypatch.setattr(precision, "FEWEST_INT8_WEIGHTS", 0)
    direct = set_precision(build("2rskip+ln").float(), "int8")
    packed_first = set_precision(set_precision(build("2rskip+ln").float(), "float32"), "int8")
    assert torch.equal(direct(source, prefix), packed_first(source, prefix))
    with pytest.raises(ValueError, match="the model is in int8 and can't be converted to float32: load it again"):
        set_precision(direct, "float32")


def test_what_a_model_cannot_compute_in_is_refused(build):
    with pytest.raises(ValueError, match="unknown precision 'fp8': expected one of float32, bfloat16, int8"):
        set_precision(build(), "fp8")
    assert PRECISIONS == ("float32", "bfloat16", "int8")
    with pytest.raises(ValueError, match="int8 is for CPUs and the model is on meta"):
        set_precision(build().to("meta"), "int8")


@pytest.mark.slow
@needs_int8
@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets an instruction set of x86 processors")
def test_without_vnni_weights_and_rows_have_7_bits_and_sums_are_exact(tmp_path):
    plain, x = linear(200, 33), torch.randn(40, 200)
    torch.save((plain, x), tmp_path / "given.pt")
    code = (
        "import torch\n"
        "from rskip.cpu.linear import Int8Linear, largest_int8_weight\n"
        "plain, x = torch.load('given.pt', weights_only=False)\n"
        "with torch.no_grad():\n"
        "    torch.save((largest_int8_weight(), Int8Linear(plain)(x)), 'found.pt')\n"
    )
    environment = {**os.environ, "RSKIP_NATIVE": "avx2"}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)
    largest, found = torch.load(tmp_path / "found.pt")
    assert largest == 64
    quantised, row_scales = Int8Linear(plain, largest), x.abs().amax(1, keepdim=True) / 63
    sums = (x / row_scales).round().double() @ quantised.weight.double().T
    expected = (sums * row_scales * quantised.scales).float() + plain.bias.detach()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@needs_int8
def test_a_model_whose_output_projection_is_too_small_for_int8_is_in_int8(build):
    model = set_precision(build(encoder_embed_dim=256, encoder_ffn_embed_dim=256), "int8")
    assert not isinstance(model.decoder.output_projection, Int8Linear)
    assert CpuTransformer(model).precision == "int8"
    with pytest.raises(ValueError, match="can't be converted to float32"):
        set_precision(model, "float32")


def test_without_kernels_pytorch_runs_the_model_as_it_is(build, source, monkeypatch):
    for module in ("library", "linear", "precision", "transformer"):
        monkeypatch.setattr(f"rskip.cpu.{module}.find_library", lambda: Found(None, "not compiled"))
    model = build("2rskip+ln").float()
    expected = model.encode(source).states
    assert for_inference(model, "float32") is model and not isinstance(model.decoder.output_projection, PackedLinear)
    torch.testing.assert_close(model.encode(source).states, expected.detach())
    with pytest.raises(ValueError, match=r"int8 can't be used: not compiled; use float32 or bfloat16"):
        for_inference(model, "int8")
