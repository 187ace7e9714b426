"""`check_calls` tells which call of a model's residuals is missing, doubled or out of order."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rskip.nn import Residuals, adapt, check_calls


class Model(nn.Module):
    """Two layers, whose calls a test gives as a function of the residuals and the input."""

    def __init__(self, spec: str, run: Callable[[Residuals, Tensor], Tensor]) -> None:
        super().__init__()
        self.residuals, self.run = Residuals(spec, 4, layers=2), run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.residuals, x)


def right(residuals: Residuals, x: Tensor) -> Tensor:
    s = residuals.enter(x)
    for layer in residuals:
        s = layer.attention(s, torch.tanh)
        given, kept = layer.ffn.before(s)
        s = layer.ffn.after(kept, torch.tanh(given))
    return residuals.leave(s)


def shared(residuals: Residuals, x: Tensor) -> Tensor:
    return right(residuals, right(residuals, x))


@pytest.mark.parametrize("spec", ["2rskip+ln", "hyper", "denseformer"])
def test_right_calls_pass_and_leave_the_model_as_it_was(spec):
    for run in (right, shared):
        model = Model(spec, run)
        expected = model(torch.ones(3, 4))
        members = copy.copy(model.residuals.__dict__)
        check_calls(model, x=torch.ones(3, 4))
        assert model.residuals.__dict__ == members
        assert torch.equal(model(torch.ones(3, 4)), expected)


def without_enter(residuals: Residuals, x: Tensor) -> Tensor:
    for layer in residuals:
        x = layer.ffn(layer.attention(x, torch.tanh), torch.tanh)
    return residuals.leave(x)


def without_leave(residuals: Residuals, x: Tensor) -> Tensor:
    for layer in residuals:
        x = layer.ffn(layer.attention(residuals.enter(x) if layer is residuals[0] else x, torch.tanh), torch.tanh)
    return x


def without_after(residuals: Residuals, x: Tensor) -> Tensor:
    s = residuals.enter(x=x)
    residuals[0].attention.before(state=s)
    return residuals[0].ffn(s, torch.tanh)


def leaving_twice(residuals: Residuals, x: Tensor) -> Tensor:
    return residuals.leave(right(residuals, x))


def one_layer(residuals: Residuals, x: Tensor) -> Tensor:
    return residuals.leave(residuals[1].ffn(residuals[1].attention(residuals.enter(x), torch.tanh), torch.tanh))


def twice(residuals: Residuals, x: Tensor) -> Tensor:
    s = residuals.enter(x)
    for layer in residuals:
        s = layer.attention(layer.attention(s, torch.tanh), torch.tanh)
    return residuals.leave(s)


def in_place(residuals: Residuals, x: Tensor) -> Tensor:
    s = residuals.enter(x)
    for layer in residuals:
        s = layer.ffn(layer.attention(s, torch.tanh), torch.relu_)
    return residuals.leave(s)


def with_branch(branch: Callable[[Tensor], object]) -> Callable[[Residuals, Tensor], Tensor]:
    return lambda residuals, x: residuals.leave(residuals[0].attention(residuals.enter(x), branch))


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (without_enter, r"first it calls \[0\].attention.before: expected enter"),
        (without_leave, r"after \[1\].ffn.after it makes no call: expected leave"),
        (without_after, r"after \[0\].attention.before it calls \[0\].ffn.before: expected \[0\].attention.after"),
        (leaving_twice, "after leave it calls leave: expected nothing more, or enter"),
        (one_layer, r"after enter it calls \[1\].attention.before: expected \[0\].attention.before"),
        (twice, r"after \[0\].attention.after it calls \[0\].attention.before: expected \[0\].ffn.before"),
        (in_place, r"the branch of \[0\].ffn changes its input in place: expected a new tensor, .*"),
        (lambda residuals, x: x, "it is not called: expected enter"),
        (with_branch(lambda x: x[..., :1]), r"the branch of .* returns .*\(3, 1\): expected .* \(3, 4\), .*"),
        (with_branch(torch.Tensor.long), "the branch of .* returns torch.int64 .*"),
        (with_branch(lambda x: None), "the branch of .* returns a NoneType.*"),
    ],
)
def test_wrong_calls_are_told(run, told):
    with pytest.raises(ValueError, match=f"^the model's residuals: {told}$"):
        check_calls(Model("2rskip+ln", run), torch.ones(3, 4))


def test_a_branch_may_change_what_the_connection_does_not_need():
    for spec in ("prenorm+ln", "attnres"):
        check_calls(Model(spec, in_place), torch.ones(3, 4))


def test_an_error_of_a_wrong_call_is_told_as_that_call():
    x = torch.ones(3, 4)
    with pytest.raises(ValueError, match=r"residuals: first it calls \[0\].attention.before: expected enter"):
        check_calls(Model("mhc", without_enter), x)
    with pytest.raises(ZeroDivisionError):
        check_calls(Model("mhc", lambda residuals, x: residuals.enter(x) / 0 if 1 // 0 else x), x)


def test_a_model_without_residuals_is_refused():
    adapted = adapt(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 1), "2rskip+ln")
    for model in (nn.Linear(2, 2), adapted):
        with pytest.raises(ValueError, match="without Residuals: expected a model that has some"):
            check_calls(model, torch.ones(2, 2))
