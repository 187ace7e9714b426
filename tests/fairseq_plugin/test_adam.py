"""`--optimizer rskip_adam` gives fairseq's Adam: parameters, norms, loss scales and checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fairseq import optim, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import nn

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patches import fp16_on_cpu
from rskip.fairseq_plugin.adam import FusedAdam

PRECISIONS = {
    "float32": {},
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp16, not flat": {"fp16": True, "fp16_no_flatten_grads": True},
    "memory-efficient bf16": {"bf16": True, "memory_efficient_bf16": True},
    "memory-efficient fp16": {"fp16": True, "memory_efficient_fp16": True},
}
ADAM = ["--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-3", "--weight-decay", "0.01", "--lr", "0.05"]
CLIP = 0.5
Configured = Callable[..., Any]


@pytest.fixture(scope="module")
def configured() -> Configured:
    """fairseq's configuration with this optimizer, and settings of its own and of the group `common`."""
    flags = ["data", "--arch", "transformer_skip_ln_tiny", "--optimizer", "adam", *ADAM, "--fp16-init-scale", "4"]
    base = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), flags))

    def build(name: str, precision: dict[str, bool], **settings: bool) -> Any:
        config = copy.deepcopy(base)
        config.common.update(precision)
        config.optimizer.update({"_name": name, **settings})
        return config

    return build


class Training:
    """Three parameters, updated as fairseq's trainer does with gradients that depend on the update alone."""

    def __init__(self, config: Any) -> None:
        common = config.common
        generator = torch.Generator().manual_seed(1)
        kind = torch.float16 if common.fp16 else torch.bfloat16 if common.bf16 else torch.float32
        shapes = (7, 5), (5,), (3, 2, 2)
        self.parameters = [nn.Parameter(torch.randn(each, generator=generator).to(kind)) for each in shapes]
        if common.memory_efficient_fp16 or common.memory_efficient_bf16:
            self.optimizer = optim.MemoryEfficientFP16Optimizer.build_optimizer(config, self.parameters)
        elif common.fp16 or common.bf16:
            self.optimizer = optim.FP16Optimizer.build_optimizer(config, self.parameters)
        else:
            self.optimizer = optim.build_optimizer(config.optimizer, self.parameters)
        self.norms: list[float] = []

    def update(self, number: int, *, without: int | None = None, overflow: bool = False) -> None:
        """One update; parameter `without` has no part in the loss."""
        optimizer, generator = self.optimizer, torch.Generator().manual_seed(number)
        optimizer.zero_grad()
        factors = [torch.randn(each.shape, generator=generator) for each in self.parameters]
        loss = sum((each.float() * factor).sum() for each, factor in zip(self.parameters, factors, strict=True))
        if without is not None:
            loss = loss - (self.parameters[without].float() * factors[without]).sum()
            self.parameters[without].requires_grad_(False)
        optimizer.backward(loss * (float("inf") if overflow else 1))
        if without is not None:
            self.parameters[without].requires_grad_(True)
        optimizer.multiply_grads(1 / 3)
        try:
            norm = optimizer.clip_grad_norm(CLIP)
        except OverflowError:
            optimizer.zero_grad()
            return
        self.norms.append(float(norm))
        optimizer.set_lr(0.05 / number)
        optimizer.step()

    @property
    def masters(self) -> list[torch.Tensor]:
        """What the optimizer updates, float32 but for --memory-efficient-*."""
        return [each.detach() for group in self.optimizer.optimizer.param_groups for each in group["params"]]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """--fp16 asks for the current GPU, to compare it with that of parameters."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(fp16_on_cpu, "on_cpu", lambda _: False)


@pytest.fixture(params=["GPU", "CPU"])
def fused(request, monkeypatch) -> bool:
    """Whether the update is the fused one, as on GPUs."""
    if request.param == "GPU":
        monkeypatch.setattr(FusedAdam, "on_gpu", property(lambda _: True))
    return request.param == "GPU"


@pytest.fixture(params=PRECISIONS)
def precision(request) -> dict[str, bool]:
    return PRECISIONS[request.param]


def assert_same(ours: Training, expected: Training, *, exact: bool) -> None:
    pairs = zip([*ours.masters, *ours.parameters], [*expected.masters, *expected.parameters], strict=True)
    for mine, theirs in pairs:
        rtol = 2e-6 if theirs.dtype == torch.float32 else torch.finfo(theirs.dtype).eps
        atol = 1e-6 if theirs.dtype == torch.float32 else 3e-4  # gradients are rounded too where there are no masters
        torch.testing.assert_close(mine, theirs, rtol=0 if exact else rtol, atol=0 if exact else atol)
    assert ours.norms == pytest.approx(expected.norms, rel=0 if exact else 1e-6)


@pytest.mark.parametrize("without", [None, 1])
def test_updates_are_fairseqs(configured, precision, fused, without):
    expected, ours = (Training(configured(name, precision)) for name in ("adam", "rskip_adam"))
    for number in range(1, 9):
        for training in (expected, ours):
            training.update(
                number, without=without if number in (1, 4) else None, overflow="fp16" in precision and number == 3
            )
        assert_same(ours, expected, exact=not fused)
    assert max(expected.norms) > CLIP
    if "fp16" in precision:
        assert len(ours.norms) == 7
        assert ours.optimizer.scaler.loss_scale == expected.optimizer.scaler.loss_scale == 2


@pytest.mark.parametrize("resumed", ["adam", "rskip_adam"])
def test_a_checkpoint_of_either_goes_on_with_the_other(configured, precision, fused, resumed):
    written = "adam" if resumed == "rskip_adam" else "rskip_adam"
    unbroken, before, after = (Training(configured(name, precision)) for name in (written, written, resumed))
    for number in range(1, 4):
        unbroken.update(number)
        before.update(number)
    state = copy.deepcopy(before.optimizer.state_dict())
    assert type(after.optimizer).__name__ == type(before.optimizer).__name__  # fairseq compares them
    with torch.no_grad():
        for to, value in zip(after.parameters, before.parameters, strict=True):
            to.copy_(value)
        for to, value in zip(after.masters, before.masters, strict=True):
            to.copy_(value)
    after.optimizer.load_state_dict(state)
    loaded, kept = after.optimizer.state_dict(), before.optimizer.state_dict()
    assert loaded["param_groups"] == kept["param_groups"] and loaded["state"].keys() == kept["state"].keys()
    for key, value in kept["state"].items():
        assert loaded["state"][key]["step"] == value["step"] == 3
        for name in ("exp_avg", "exp_avg_sq"):
            assert loaded["state"][key][name].dtype == torch.float32
            assert torch.equal(loaded["state"][key][name], value[name])
    for number in range(4, 7):
        unbroken.update(number)
        after.update(number)
    after.norms = [*before.norms, *after.norms]
    assert_same(after, unbroken, exact=not fused)


def test_a_half_precision_model_larger_than_a_bucket_is_updated_whole(configured, monkeypatch):
    monkeypatch.setattr(FusedAdam, "on_gpu", property(lambda _: True))
    monkeypatch.setattr("rskip.fairseq_plugin.adam._BUCKET", 36)
    precision = PRECISIONS["memory-efficient bf16"]
    expected, ours = (Training(configured(name, precision)) for name in ("adam", "rskip_adam"))
    for number in range(1, 4):
        expected.update(number)
        ours.update(number)
    assert_same(ours, expected, exact=False)


def test_float16_needs_a_gpu(configured, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(UsageError, match="^--fp16 needs a GPU, but training runs on the CPU: use --bf16, or leave"):
        Training(configured("rskip_adam", PRECISIONS["fp16"]))
