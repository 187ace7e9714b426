"""`adapt` over all hosts: stock connections change nothing, others train, states go round, unknown blocks fail."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.nn import HOSTS, adapt, adaptation
from rskip.settings.errors import SettingError


@dataclass
class Case:
    """A small model of a host.

    :param build: makes the model.
    :param call: its output, a tensor, for inputs that are drawn from seed 0.
    :param stock: the connection that the library computes itself.
    :param same: other connections that start as this one, or differ from it by rounding only.
    :param others: connections to train.
    :param refused: connections that can't live there.
    """

    library: str
    build: Callable[[], nn.Module]
    call: Callable[[Any], Tensor]
    stock: str
    same: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def timm_vit() -> nn.Module:
    import timm

    return timm.create_model("vit_tiny_patch16_224", img_size=16, patch_size=8, depth=3, embed_dim=48, num_classes=5)


PRE_NORM = ("laurel+ln", "layerscale+ln:init=1", "denseformer", "hyper")
TEXT = ("2rskip+ln", "wskip+ln", "sas", "mhc", "attnres", "siamese", "residual_dual", "periln", "keel", "askip+ln")
CASES = {
    "timm.models.vision_transformer.Block": Case(
        "timm",
        timm_vit,
        lambda model: model(draw(2, 3, 16, 16)),
        "prenorm+ln",
        PRE_NORM,
        TEXT,
        ("deepnorm", "subln", "2rskip+bn"),
    ),
}


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=sorted(CASES))
def case(request) -> Case:
    case = CASES[request.param]
    pytest.importorskip(case.library, reason=f"{case.library} is an optional library")
    torch.manual_seed(0)
    return case


def test_every_host_has_a_case():
    assert sorted(CASES) == sorted(HOSTS)


def test_the_stock_connection_gives_equal_bits_and_keeps_every_weight(case):
    model = case.build().eval()
    expected = case.call(model)
    before = {id(parameter): name for name, parameter in model.named_parameters()}
    assert adapt(model, case.stock) is model
    assert torch.equal(case.call(model), expected)
    found = adaptation(model)
    assert found is not None and found.spec == case.stock and not found.new and not found.dropped
    assert {id(parameter) for parameter in model.parameters()} == before.keys()
    names = {name: id(parameter) for name, parameter in model.named_parameters()}
    assert all(before[names[new]] == old for new, old in found.kept.items())


def test_connections_that_start_as_the_stock_one_keep_the_output(case):
    model = case.build().eval()
    expected = case.call(model)
    for spec in case.same:
        torch.testing.assert_close(case.call(adapt(copy.deepcopy(model), spec)), expected, rtol=1e-4, atol=1e-4)


def test_other_connections_train_and_every_parameter_has_a_gradient(case):
    model = case.build()
    for spec in case.others:
        adapted = adapt(copy.deepcopy(model), spec).train()
        loss = case.call(adapted).square().mean()
        loss.backward()
        without = [name for name, parameter in adapted.named_parameters() if parameter.grad is None]
        assert without == [], spec
        new = adaptation(adapted).new
        assert set(new) <= dict(adapted.named_parameters()).keys()


def test_states_copies_and_pickles_go_round(case):
    for spec in case.others[:5]:
        model = adapt(case.build(), spec).eval()
        expected = case.call(model)
        torch.manual_seed(1)
        other = adapt(case.build(), spec).eval()
        other.load_state_dict(model.state_dict())
        for each in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(case.call(each), expected)
            assert adaptation(each).spec == spec


def test_a_state_of_another_connection_is_refused(case):
    state = adapt(case.build(), case.others[0]).state_dict()
    with pytest.raises(SettingError, match=f"expected {case.others[0]}, as in the state".replace("+", r"\+")):
        adapt(case.build(), case.stock).load_state_dict(state)


def test_what_cannot_live_there_is_refused_and_changes_nothing(case):
    model = case.build().eval()
    expected, names = case.call(model), list(model.state_dict())
    for spec in case.refused:
        with pytest.raises(SettingError):
            adapt(model, spec)
    assert list(model.state_dict()) == names and torch.equal(case.call(model), expected)
    with pytest.raises(SettingError, match="is adapted to .* already"):
        adapt(adapt(model, case.stock), case.others[0])


def test_a_block_that_computes_something_else_is_refused(case, monkeypatch):
    model = case.build()
    kind = type(next(each for each in model.modules() if path_of(each) in HOSTS))

    def forward(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return x

    monkeypatch.setattr(kind, "forward", forward)
    with pytest.raises(SettingError, match="computes .* in another way: expected the block of"):
        adapt(model, case.stock)


def path_of(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(SettingError, match=r"is a torch.nn.modules.linear.Linear.*timm ViT.*rskip.nn.Residuals"):
        adapt(nn.Linear(2, 2), "2rskip+ln")
