"""Connections that train by the compiled kernels equal those that PyTorch computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from rskip.connections import build_connection, hyper, stream_kernels
from rskip.connections.attnres import DepthAttention
from rskip.connections.formula import connection_of
from rskip.cpu import find_library
from rskip.formulas import SAS, F, Norm, X
from rskip.nn import Residuals

pytestmark = pytest.mark.skipif(find_library().library is None, reason="the kernels were not compiled")
SPECS = [
    "mhc", "mhc+rms", "mhc:residual=identity,gate_eps=0.01", "mhc:streams=2,iterations=3,magnitude=1.5",
    "mhc:streams=8", "mhc:reads=previous", "mhc:exit=head,gate_eps=0.01", "mhc_lite", "mhc_lite:streams=2", "hyper",
    "hyper+rms:streams=8", "hyper:form=static", "frac", "frac+rms:parts=2", "frac:form=static",
    "attnres", "attnres+rms", "sas", "sas+rms:host=prenorm",
    "gated_residual", "gated_residual:streams=2,rank=5",
]  # fmt: skip
SHAPES = [(3, 5, 128), (37, 128), (1, 192)]  # 192: frac's parts fill AVX2's vectors, but not AVX-512's
NARROW = [(spec, (7, 48)) for spec in ("mhc", "hyper", "attnres", "sas", "gated_residual")]


class Model(nn.Module):
    """Layers with smooth branches."""

    def __init__(self, spec: str, features: int, seed: int = 0, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.residuals = Residuals(spec, features, layers=layers, branches=("attention", "ffn"))
        self.maps = nn.ModuleList(nn.Linear(features, features) for _ in range(2 * layers))
        with torch.no_grad():
            for each in self.residuals.parameters():
                each += 0.1 * torch.randn_like(each)

    def forward(self, x):
        maps, state = iter(self.maps), self.residuals.enter(x)
        for layer in self.residuals:
            for residual in (layer.attention, layer.ffn):
                state = residual(state, lambda given: torch.tanh(next(maps)(given)))
        return self.residuals.leave(state)


def computed(model, x, scale=1.0):
    """The output and all gradients."""
    x = x.clone().requires_grad_()
    y = model(x)
    (y * torch.linspace(-scale, scale, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    return [y.detach(), x.grad, *(each.grad for each in model.parameters())]


@pytest.fixture
def calls(monkeypatch):
    """The names of the kernels that ran."""
    library, made = find_library().library, []
    names = "read_streams", "write_streams", "attend_depth", "read_streams_gradient", "attend_depth_gradient"
    for name in (*names, "scale", "scale_gradient", "gate_streams"):
        kernel = getattr(library, name)

        def noted(*given, name=name, kernel=kernel, **work):
            made.append(name)
            kernel(*given, **work)

        monkeypatch.setattr(library, name, noted)
    return made


@pytest.mark.parametrize(("spec", "shape"), [*product(SPECS, SHAPES), *NARROW], ids=str)
def test_values_and_gradients_are_those_of_double_precision(spec, shape, calls):
    model, x = Model(spec, shape[-1]), torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = computed(model, x)
    assert any(name.endswith("_gradient") or name == "gate_streams" for name in calls)
    model.zero_grad()
    expected = computed(model.double(), x.double())
    names = ["y", "x", *(name for name, _ in model.named_parameters())]
    largest = max(each.abs().max() for each in expected[1:])
    for name, ours, exact in zip(names, found, expected, strict=True):
        bound = (1e-6 if name == "y" else 2e-5) * max(exact.abs().max(), 0.1 * largest)
        assert (ours - exact).abs().max() <= bound, name


@pytest.mark.parametrize("spec", ["mhc", "hyper", "attnres"])
def test_what_autocast_made_narrower_takes_the_kernels_too(spec, calls):
    """As in a ResNet, whose convolutions give bfloat16."""
    model, x = Model(spec, 64), torch.randn(5, 64).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = computed(model, x)
    assert calls
    model.zero_grad()
    assert (found[0] - computed(model, x.float())[0]).abs().max() < 0.05


@pytest.mark.parametrize("spec", ["mhc", "frac", "attnres", "sas", "gated_residual"])
def test_without_gradients_the_values_are_the_same(spec):
    model, x = Model(spec, 64), torch.randn(5, 64)
    with torch.no_grad():
        assert torch.equal(model(x), model(x.requires_grad_()).detach())


@pytest.mark.parametrize("spec", ["mhc", "hyper", "frac", "attnres", "sas", "gated_residual"])
def test_a_strided_input_and_gradient(spec):
    model, x = Model(spec, 64), torch.randn(64, 3, 5)
    contiguous = computed(model, x.permute(2, 1, 0).contiguous())
    model.zero_grad()
    y = model(x.permute(2, 1, 0))
    y.backward(torch.linspace(-1, 1, y.numel()).view_as(y).permute(1, 0, 2).contiguous().permute(1, 0, 2))
    assert torch.equal(y, contiguous[0])
    assert all(torch.equal(each.grad, known) for each, known in zip(model.parameters(), contiguous[2:], strict=True))


@pytest.mark.parametrize("spec", ["mhc", "hyper", "mhc_lite", "gated_residual", "frac", "mhc:reads=previous"])
def test_a_branch_output_of_another_shape_is_refused_or_broadcasts(spec):
    residuals = Residuals(spec, 64, layers=1)
    connection = residuals[0].ffn.connection
    _, kept = connection.before(residuals.enter(torch.randn(5, 64)))
    for width in (32, 128):
        with pytest.raises(RuntimeError, match=f"64.*must match the existing size.*{width}"):
            connection.after(kept, torch.ones(5, width))
    states = [connection.after(kept, torch.ones(shape)) for shape in ((5, 64), (5, 1), (64,))]
    assert all(torch.equal(each[0], states[0][0]) for each in states)


@pytest.mark.parametrize("spec", ["mhc", "frac", "attnres", "sas", "gated_residual"])
def test_gradients_of_gradients_are_refused(spec):
    x = torch.randn(3, 128, requires_grad=True)
    with pytest.raises(RuntimeError, match="RSKIP_KERNELS=0"):
        torch.autograd.grad(Model(spec, 128)(x).sum(), x, create_graph=True)


@pytest.mark.parametrize("spec", ["mhc", "hyper", "attnres", "sas", "gated_residual"])
def test_large_gradients_stay_finite(spec):
    found = computed(Model(spec, 64), torch.randn(7, 64), scale=1e30)
    assert all(each.isfinite().all() for each in found)


@pytest.mark.parametrize("spec", ["mhc", "frac", "attnres", "sas", "gated_residual"])
def test_threads_change_no_bit(spec):
    connection, x = Model(spec, 128).residuals[1].ffn.connection, torch.randn(2048, 128)
    state = Model(spec, 128).residuals.enter(x)
    state = (x, x + 1, x - 1, x * 2) if spec == "attnres" else state.contiguous()
    usual, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            connection.zero_grad()
            given, kept = connection.before(state)
            new = connection.after(kept, given)
            (new if isinstance(new, torch.Tensor) else new[-1]).square().sum().backward()
            found.append([given, *(each.grad for each in connection.parameters() if each.grad is not None)])
    finally:
        torch.set_num_threads(usual)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.parametrize("spec", ["mhc", "sas", "gated_residual"])
def test_several_threads_at_once(spec):
    models, x = [Model(spec, 64) for _ in range(8)], torch.randn(9, 64)
    expected = computed(Model(spec, 64), x)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda model: computed(model, x), models):
            assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("spec", ["mhc", "hyper", "frac", "attnres", "sas", "gated_residual"])
def test_pytorch_computes_what_the_kernels_do_not(spec, calls, monkeypatch):
    model, x = Model(spec, 32), torch.randn(3, 32)
    torch.func.vmap(model)(x.unsqueeze(0))
    if spec != "mhc":  # Sinkhorn's divisions have no forward mode
        torch.func.jvp(model, (x,), (x,))
    model(x[:0])
    model.bfloat16()(x.bfloat16())
    Model(spec, 36)(torch.randn(2, 36))
    Model(spec, 24).double()(torch.randn(2, 24).double())
    monkeypatch.setattr(stream_kernels, "_off", True)
    Model(spec, 32)(x)
    assert calls == []


def _parametrized(module, name):
    nn.utils.parametrize.register_parametrization(module, name, nn.Identity())


def _narrower(module, name):
    getattr(module, name).data = getattr(module, name).data.bfloat16()


def _strided(module, name):
    values = getattr(module, name).detach()
    apart = torch.empty(*values.shape[::-1], 2)[..., 0].permute(*range(values.dim())[::-1]).copy_(values)
    module.load_state_dict({**module.state_dict(), name: apart}, assign=True)


@pytest.mark.parametrize("change", [_parametrized, _narrower, _strided])
@pytest.mark.parametrize("spec", SPECS)
def test_pytorch_computes_with_parameters_that_the_kernels_do_not_read(spec, change, monkeypatch):
    def outcome(model):
        try:
            return model(x)
        except RuntimeError:  # PyTorch's products take one type
            return None

    x = torch.randn(3, 64)
    for name, _ in Model(spec, 64, layers=1).residuals.named_parameters():
        model, (owner, _, member) = Model(spec, 64, layers=1), name.rpartition(".")
        change(model.residuals.get_submodule(owner), member)
        found = outcome(model)
        with monkeypatch.context() as without:
            without.setattr(stream_kernels, "_off", True)
            torch.testing.assert_close(found, outcome(model), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", ["mhc", "hyper", "frac", "attnres", "gated_residual"])
def test_parameters_without_values_raise_pytorchs_error(spec):
    model = Model(spec, 64)
    model.residuals.to("meta")
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        model(torch.randn(3, 64))


def test_tensors_of_other_shapes_raise_pytorchs_error():
    attention, x = Residuals("attnres", 32, layers=1)[0].ffn.connection.attention, torch.randn(4, 50, 32)
    for values, message in (((x, x, x[0]), "equal size"), ((x[..., :16], x[..., :16]), "size mismatch")):
        with pytest.raises(RuntimeError, match=message):
            attention.attend(values)
    for spec in ("frac", "frac:form=static"):
        with pytest.raises(RuntimeError, match="got input of size"):
            build_connection(spec, 64).before(torch.randn(3, 128))
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        build_connection("sas", 32)(x, x.transpose(0, 1))


def test_logits_that_are_far_apart_stay_finite_without_sinkhorns_eps():
    connection, h = build_connection("mhc:sinkhorn_eps=0", 32), torch.randn(3, 4, 32, requires_grad=True)
    with torch.no_grad():
        connection.mixing.zero_()
        connection.bias[8::4] -= 100  # of R's first column
    given, kept = connection.before(h)
    y = connection.after(kept, 0 * given)
    torch.testing.assert_close(y, h.mean(-2, keepdim=True).expand_as(h))
    y.square().sum().backward()
    assert all(each.grad.isfinite().all() for each in (h, connection.bias))


def test_a_head_is_computed_by_the_kernels(calls):
    Model("hyper:exit=head", 64, layers=1)(torch.randn(3, 64))
    assert calls.count("read_streams") == 3


@pytest.mark.parametrize("spec", ["mhc", "frac", "attnres"])
def test_under_autocast_the_kernels_run_too(spec, calls):
    model, x = Model(spec, 128), torch.randn(3, 128)
    with torch.autocast("cpu"):
        y = model(x)
    assert len(calls) > 3 and torch.allclose(y, model(x), atol=0.1)


def test_a_class_with_weights_of_its_own_does_not_use_those_of_its_parent(calls):
    class Plain(hyper.ManifoldHyperConnection):
        def residual_weights(self, w):
            return torch.eye(self.streams).expand(*w.shape[:-1], -1, -1)

    Plain(32).before(torch.randn(2, 4, 32))
    assert calls == []


def test_where_triton_fails_pytorch_computes_and_says_so(monkeypatch):
    def write(*given):
        raise RuntimeError("Failed to find C compiler.\nDetails")

    monkeypatch.setattr(stream_kernels, "find_triton", lambda: SimpleNamespace(streams=SimpleNamespace(write=write)))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with pytest.warns(UserWarning, match=r"Triton's kernels are not used.* C compiler\.$"):
        assert not stream_kernels._suits.__wrapped__(torch.device("cpu"))


def test_a_hook_at_the_norm_or_at_a_connection_of_x_is_called():
    connection, seen = hyper.ManifoldHyperConnection(32), []
    connection.norm.register_forward_hook(lambda *given: seen.append(given))
    connection.before(torch.randn(2, 4, 32))
    assert len(seen) == 1
    whole = build_connection("frac", 128)
    whole.register_forward_hook(lambda *given: seen.append(given))
    given, kept = whole.before(torch.randn(2, 4, 128))
    whole.after(kept, given)
    assert len(seen) == 2
    attention = DepthAttention(32)
    attention.register_forward_hook(lambda *given: seen.append(given))
    attention.attend((torch.randn(4, 32), torch.randn(4, 32)))
    assert len(seen) == 3


def test_logits_stay_in_float32_within_autocast():
    h, mixing = torch.randn(5, 4, 32), torch.randn(24, 128)
    with torch.autocast("cpu", torch.bfloat16):
        found = hyper.projected(h, mixing, 1e-5)
    assert torch.equal(found, hyper.projected(h, mixing, 1e-5))


@pytest.mark.parametrize("spec", ["hyper", "mhc", "mhc_lite", "mhc:residual=identity"])
def test_recomputed_streams_are_the_same_and_most_are_not_kept(spec):
    kept, gradients = zip(*(_with_recomputation(spec, recompute) for recompute in (None, "streams")), strict=True)
    assert kept == (8, 4)  # before every other of 8 blocks
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def _with_recomputation(spec, recompute):
    """The number of states that autograd keeps, and the gradients."""
    torch.manual_seed(1)
    residuals, branch = Residuals(spec, 32, layers=4, recompute=recompute), nn.Tanh()
    for each in residuals.parameters():
        each.data += 0.1 * torch.randn_like(each)
    x, states = torch.randn(2, 5, 32, requires_grad=True), []

    def note(tensor):
        states.extend([tensor] if tensor.shape == (2, 5, 4, 32) else [])
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        state = residuals.enter(x)
        for layer in residuals:
            state = layer.ffn(layer.attention(state, branch), branch)
        loss = residuals.leave(state).square().sum()
    loss.backward()
    return len(states), [x.grad, *(each.grad for each in residuals.parameters())]


@pytest.mark.parametrize("spec", ["hyper", "frac", "attnres", "sas", "mhc:reads=previous", "gated_residual"])
def test_a_module_says_what_computes(spec, monkeypatch):
    connection = Residuals(spec, 128, layers=1)[0].ffn
    assert f"computed by kernels ({find_library().library.instructions})" in repr(connection)
    assert "computed by PyTorch" in repr(Residuals(spec, 132, layers=1)[0].ffn)
    monkeypatch.setattr(stream_kernels, "_interpreted", True)
    has_triton_kernel = stream_kernels.find_triton() and spec in ("hyper", "frac", "attnres")
    assert f"computed by {'Triton' if has_triton_kernel else 'PyTorch'}" in repr(connection)
    assert "computed by PyTorch" in repr(connection.double())


class _Weaker(SAS):
    """Another formula with SAS's members."""

    def __init__(self, **options):
        super().__init__(**options)
        (alpha, _), (beta, _), *_ = self.y.parts
        self.y = alpha * X + beta * F + Norm("norm", "ln", X + F)


def test_sas_with_another_formula_or_changed_gates_or_autocast_is_computed_by_pytorch(calls):
    x, seen = torch.randn(5, 32), []
    connection = build_connection("sas", 32)
    connection.alpha_gate.output.register_forward_hook(lambda *given: seen.append(given))
    connection(x, x)
    other = connection_of(_Weaker(norm="ln"), 32, -1)
    other(x, x)
    changed = build_connection("sas", 32)
    nn.utils.parametrizations.weight_norm(changed.beta_gate.hidden)
    changed(x, x)
    with torch.autocast("cpu"):
        build_connection("sas", 32)(x, x)
    assert len(seen) == 1 and calls == []
