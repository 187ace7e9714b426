"""bfloat16 and float16, as the module's type and under autocast: statistics and gates are in float32."""

from __future__ import annotations

import contextlib
import copy
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import build_connection

HALVES = [torch.bfloat16, torch.float16]
MODES = ["module", "autocast"]
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # relative, of a stored result, twice over


def low_precision(connection: nn.Module, mode: str, dtype: torch.dtype):
    """The connection as it computes in low precision, and the context in which it does."""
    if mode == "module":
        return connection.to(dtype), contextlib.nullcontext()
    return connection, torch.autocast("cpu", dtype=dtype)


def type_of_y(spec: str, dtype: torch.dtype, mode: str) -> torch.dtype:
    """Under autocast only sums and batch normalisation stay in half precision, as in torch's own modules."""
    stays = spec in ("2xskip", "2xskip:branch_scale=2", "prenorm+ln", "2xskip+bn")
    return dtype if mode == "module" or stays else torch.float32


def far_from_zero(*shape: int) -> tuple[Tensor, Tensor]:
    """x around 384, f around 0, all multiples of 8: x + f, 2x + f and 3x + f are exact in bfloat16."""
    generator = torch.Generator().manual_seed(0)
    x = 8.0 * torch.randint(32, 64, shape, generator=generator)
    f = 8.0 * torch.randint(-8, 9, shape, generator=generator)
    return x, f


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "spec",
    ["1xskip+ln", "3xskip+ln", "1rskip+ln", "wskip+ln:init=2", "2xskip+rms", "2xskip+gn1", "2xskip+bn", "sas+bn"],
)
def test_statistics_are_float32(spec, dtype, mode):
    feature_dim = 1 if "bn" in spec or "gn1" in spec else -1
    shape = (16, 64, 4, 4) if feature_dim == 1 else (8, 512)
    x, f = far_from_zero(*shape)
    connection = build_connection(spec, shape[1], feature_dim=feature_dim)
    if spec.startswith("sas"):  # the normalised term alone
        connection.reset_parameters(nn.init.zeros_)
        with torch.no_grad():
            connection.alpha_gate.output.bias.fill_(-40)
            connection.beta_gate.output.bias.fill_(-40)
    exact = copy.deepcopy(connection).double()(x.double(), f.double())
    module, context = low_precision(connection, mode, dtype)
    with context:
        y = module(x.to(dtype), f.to(dtype))
    assert y.dtype == type_of_y(spec, dtype, mode)
    torch.testing.assert_close(y.double(), exact, rtol=ROUNDING[dtype], atol=2e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("spec", ["highway:bias=8", "highway:bias=8,gate=single", "highway:bias=8,gate=full"])
def test_a_nearly_open_gate_still_carries_the_input(spec, dtype, mode):
    """1 - σ(8) is 3.4e-4; from a σ(8) rounded to bfloat16 it would be 0."""
    connection = build_connection(spec, 16)
    connection.reset_parameters(nn.init.zeros_)
    x = torch.linspace(1, 4, 16).to(dtype)
    module, context = low_precision(connection, mode, dtype)
    with context:
        y = module(x, torch.zeros_like(x))
    expected = x.double() * (1 - torch.sigmoid(torch.tensor(8.0, dtype=torch.float64)))
    torch.testing.assert_close(y.double(), expected, rtol=ROUNDING[dtype], atol=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("gate", ["full", "single"])
def test_a_nearly_open_gate_of_sas_leaves_the_normalised_term(gate, dtype, mode):
    connection = build_connection(f"sas:alpha_bias=8,beta_bias=-40,gate={gate}", 16)
    connection.reset_parameters(nn.init.zeros_)
    x = (torch.linspace(1, 4, 16) * 2.0**-12).to(dtype)
    zeros = torch.zeros_like(x)
    exact = copy.deepcopy(connection).double()(x.double(), zeros.double())
    assert (exact - x.double()).abs().max() > 0.01 * x.abs().max(), "a term that counts"
    module, context = low_precision(connection, mode, dtype)
    with context:
        y = module(x, zeros)
    torch.testing.assert_close(y.double(), exact, rtol=2 * ROUNDING[dtype], atol=4e-7)


def test_running_statistics_of_a_bfloat16_module_keep_moving():
    connection = build_connection("1xskip+bn", 4, feature_dim=1).to(torch.bfloat16)
    assert connection.norm.weight.dtype == torch.bfloat16
    generator = torch.Generator().manual_seed(0)
    exact = build_connection("1xskip+bn", 4, feature_dim=1).double()
    for _ in range(60):
        x = (100 + torch.randn(32, 4, 2, 2, generator=generator)).bfloat16()
        connection(x, torch.zeros_like(x))
        exact(x.double(), torch.zeros_like(x).double())
    # in bfloat16 the mean would stop around 98, where a tenth of what is left rounds to nothing
    torch.testing.assert_close(connection.norm.running_mean.double(), exact.norm.running_mean, rtol=1e-5, atol=0)
    torch.testing.assert_close(connection.norm.running_var.double(), exact.norm.running_var, rtol=1e-4, atol=0)
    assert connection.float().norm.running_mean.dtype == torch.float32
    assert connection.double().norm.running_mean.dtype == torch.float64


@pytest.fixture
def every_warning(recwarn):
    """All warnings of the test, also those that torch gives once a process."""
    torch.set_warn_always(True)
    yield recwarn
    torch.set_warn_always(False)


EVERY = [
    "2xskip", "2xskip+ln", "2xskip+rms", "2xskip:branch_scale=2", "2rskip+ln", "2rskip+rms", "wskip+ln",
    "wskip+rms", "sas", "sas+rms", "sas:gamma=free", "sas:norm_term=false", "sas:gate=single",
    "highway", "highway:gate=single", "highway:gate=full", "highway:gate=shortcut", "prenorm+ln",
]  # fmt: skip


@pytest.mark.parametrize("spec", EVERY)
def test_every_connection_is_near_its_float64_self(spec, every_warning):
    torch.manual_seed(0)
    connection = build_connection(spec, 32)
    for dtype, mode in product(HALVES, MODES):
        x, f = torch.randn(2, 5, 7, 32).to(dtype)
        exact = copy.deepcopy(connection).double()(x.double(), f.double())
        module, context = low_precision(copy.deepcopy(connection), mode, dtype)
        with context:
            y = module(x, f)
        assert y.dtype == type_of_y(spec, dtype, mode)
        atol = 4 * ROUNDING[dtype] * exact.abs().max().item()
        torch.testing.assert_close(y.double(), exact, rtol=0, atol=atol, msg=f"{dtype}, {mode}")
    assert not [str(warning.message) for warning in every_warning.list]


@pytest.mark.parametrize("spec", EVERY)
def test_a_float32_input_stays_float32_when_autocast_makes_the_branch_bfloat16(spec, every_warning):
    torch.manual_seed(0)
    connection = build_connection(spec, 32)
    x, f = torch.randn(5, 7, 32), torch.randn(5, 7, 32).bfloat16()
    exact = copy.deepcopy(connection).double()(x.double(), f.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = connection(x, f)
    assert y.dtype == torch.float32
    gated = "sas" in spec or "highway" in spec  # whose linear maps autocast computes in bfloat16
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=0.03 if gated else 2e-6)
    assert not [str(warning.message) for warning in every_warning.list]
