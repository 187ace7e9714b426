"""Normalisations: eps is 1e-5 by default, and statistics are computed in float32 or better.

Shapes: (B, T, C) with feature_dim=-1 for text, (N, C, H, W) with feature_dim=1 for images. Member names are
torch.nn's (`weight`, `bias`, `running_mean`, ...); they are checkpoint API.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.formulas.parameters import NORMS, NORMS_OF_IMAGES, NORMS_OF_TEXT
from rskip.settings.errors import SettingError, did_you_mean

EPS = 1e-5
MOMENTUM = 0.1  # for batch normalisation's running statistics


def check_features(features: int, feature_dim: int) -> None:
    """Raises SettingError unless `features` is a whole number from 1 to 10^8 and `feature_dim` is -1 or 1."""
    if not isinstance(features, int) or not 1 <= features <= 10**8:
        raise SettingError.of_value("features", features, "a whole number from 1 to 10^8")
    if feature_dim not in (-1, 1):
        raise SettingError.of_value("feature_dim", feature_dim, "-1 (text: (B, T, C)) or 1 (images: (N, C, H, W))")


def features_to(feature_dim: int, y: Tensor) -> Tensor:
    """Moves the features from the last dimension to `feature_dim`, which is -1 or 1."""
    if feature_dim == -1:
        return y
    return y.movedim(y.dim() - 1, feature_dim)  # torch.onnx.export(dynamo=False) writes -1 into the file as it is


def at_least_float32(z: Tensor) -> Tensor:
    """Converts float16 and bfloat16 to float32; leaves float32 and float64 unchanged."""
    return z if z.dtype == torch.float32 else z.to(torch.promote_types(z.dtype, torch.float32))


def divided_by_rms(z: Tensor, eps: float) -> Tensor:
    """z (..., C) divided by the root mean square of its features, in float32 or better."""
    z = at_least_float32(z)
    return z * torch.rsqrt(z.square().mean(-1, keepdim=True) + eps)


def under_autocast(device: torch.device) -> bool:
    """Whether autocast is on for this device. The meta device does not support autocast."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """A context without autocast on this device: matrix products keep their factors' type."""
    return torch.autocast(device.type, enabled=False) if under_autocast(device) else nullcontext()


def normalised_type(z: Tensor) -> torch.dtype:
    """The type of z's normalised values: z's own, but float32 or better under autocast.

    Autocast on CUDA computes and returns layer normalisation in float32. Here this holds on all devices for ln, rms and
    gn1; bn stays as in torch, because networks also use it inside their branches. If a feature's mean is 100, bfloat16
    rounds its deviations to multiples of 0.5.
    """
    return torch.promote_types(z.dtype, torch.float32) if under_autocast(z.device) else z.dtype


class Normalisation(nn.Module):
    """Base class of all normalisations in this module."""

    reset_parameters: Callable[[], None]


class LayerNorm(Normalisation, nn.LayerNorm):
    """Layer normalisation over the features at each position; on images, over the channels at each pixel.

    F.layer_norm computes the statistics of float16 and bfloat16 in float32, so nothing is converted for them.
    Source: Ba et al. 2016.
    """

    def __init__(self, features: int, *, feature_dim: int = -1, eps: float = EPS) -> None:
        super().__init__(features, eps=eps)
        self.feature_dim = feature_dim

    def forward(self, z: Tensor) -> Tensor:
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias  # a model without biases has set it to None
        if z.dtype != torch.float32:
            z = z.to(normalised_type(z))
        if z.dtype == torch.float32 != weight.dtype:  # F.layer_norm refuses a gain narrower than its input
            weight, bias = at_least_float32(weight), None if bias is None else at_least_float32(bias)
        if self.feature_dim == -1:
            return torch.layer_norm(z, self.normalized_shape, weight, bias, self.eps)
        y = F.layer_norm(z.movedim(1, -1), self.normalized_shape, weight, bias, self.eps)
        return features_to(1, y)


class RMSNorm(Normalisation, nn.RMSNorm):
    """Division by the root mean square of the features at each position, with a gain but without a bias.

    Source: Zhang and Sennrich 2019.
    """

    eps: float

    def __init__(self, features: int, *, feature_dim: int = -1, eps: float = EPS) -> None:
        super().__init__(features, eps=eps)
        self.feature_dim = feature_dim

    def forward(self, z: Tensor) -> Tensor:
        weight: Tensor = self.weight
        same = z
        if weight.dtype != z.dtype:  # F.rms_norm is fused only if input and gain have one type; it sums in float32
            same = at_least_float32(z)
            weight = weight.to(same.dtype)
        if self.feature_dim == -1:
            y = F.rms_norm(same, self.normalized_shape, weight, self.eps)
        else:
            y = features_to(1, F.rms_norm(same.movedim(1, -1), self.normalized_shape, weight, self.eps))
        return y if y.dtype == torch.float32 == z.dtype else y.to(normalised_type(z))


class GroupNorm(Normalisation, nn.GroupNorm):
    """Group normalisation with one group, over all features and positions of each example; only for images.

    It is layer normalisation over C×H×W with one gain and one bias per feature. Source: Wu and He 2018.
    """

    def __init__(self, features: int, *, eps: float = EPS) -> None:
        super().__init__(1, features, eps=eps)

    def forward(self, z: Tensor) -> Tensor:
        # F.group_norm sums in float32, but needs input and gain of the same type
        same = z if z.dtype == self.weight.dtype else at_least_float32(z)
        return F.group_norm(same, 1, self.weight, self.bias, self.eps).to(normalised_type(z))


class BatchNorm(Normalisation, nn.BatchNorm2d):
    """Batch normalisation of each feature over batch and positions; only for images.

    Running statistics stay in float32 when the module is converted to half precision, where small updates would round
    to 0. `counts_batches` says whether a training forward adds 1 to num_batches_tracked (see `take_batch_counts`).
    Source: Ioffe and Szegedy 2015.
    """

    def __init__(self, features: int, *, eps: float = EPS) -> None:
        super().__init__(features, eps=eps, momentum=MOMENTUM)
        self.counts_batches = True

    def forward(self, z: Tensor) -> Tensor:
        momentum = self.momentum
        if self.training and self.num_batches_tracked is not None:
            if self.counts_batches or momentum is None:
                self.num_batches_tracked.add_(1)
            if momentum is None:  # average over all batches, as torch.optim.swa_utils.update_bn requests
                momentum = 1 / int(self.num_batches_tracked)
        weight, bias = at_least_float32(self.weight), at_least_float32(self.bias)
        return F.batch_norm(
            z, self.running_mean, self.running_var, weight, bias, self.training, momentum or 0.0, self.eps
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        exact = {name: getattr(self, name) for name in ("running_mean", "running_var")}
        nn.Module._apply(self, fn, recurse)  # not super(): FirstGain, which is of another type, calls this too
        for name, value in exact.items():
            converted = getattr(self, name)
            if converted.dtype in (torch.float16, torch.bfloat16):
                setattr(self, name, value.to(converted.device))
        return self


class FirstGain(Normalisation):
    """A normalisation whose gain starts at `first_gain`.

    It takes over the members of a normalisation from `build_norm`. It is not one of torch's types, because models
    reset the gains of those to 1. `kind` is the type of the normalisation. Members: the normalisation's.
    """

    def __init__(self, norm: Normalisation, first_gain: float) -> None:
        super().__init__()
        self.__dict__.update(norm.__dict__)
        self.kind: Any = type(norm)
        self.first_gain = first_gain
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the gain to `first_gain` and the bias to 0, and resets running statistics as `nn.BatchNorm2d` does."""
        for name, parameter in self.named_parameters():
            nn.init.constant_(parameter, self.first_gain if name == "weight" else 0.0)
        if dict(self.named_buffers()):
            self.kind.reset_running_stats(self)

    def forward(self, z: Tensor) -> Tensor:
        y: Tensor = self.kind.forward(self, z)
        return y

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return self.kind._apply(self, fn, recurse)

    def extra_repr(self) -> str:
        return f"{self.kind.__name__}, {self.kind.extra_repr(self)}, first_gain={self.first_gain:g}"


def kind_of(norm: nn.Module) -> type:
    """The type of a normalisation, also if it is a FirstGain."""
    return norm.kind if isinstance(norm, FirstGain) else type(norm)


def take_batch_counts(model: nn.Module) -> list[Tensor]:
    """Returns num_batches_tracked of every BatchNorm in the model. From then on the caller must update them.

    `torch._foreach_add_(counts, 1)` after each training forward updates all of them in one call. A norm without
    momentum averages over all batches and still counts them itself.
    """
    norms = [module for module in model.modules() if isinstance(module, BatchNorm) and module.momentum is not None]
    for norm in norms:
        norm.counts_batches = False
    return [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]


def set_eps(module: nn.Module, eps: float) -> None:
    """Sets the eps that every normalisation within the module adds to the variance or mean square.

    :raises SettingError: eps is not a number of at least 0.
    """
    _check_eps(eps)
    for each in module.modules():
        if hasattr(each, "eps"):
            each.eps = eps  # type: ignore[assignment]


def _check_eps(eps: float) -> None:
    if not 0 <= eps < float("inf"):
        raise SettingError.of_value("eps", eps, "a number of at least 0, such as 1e-6")


def build_norm(
    norm: str, features: int, feature_dim: int = -1, *, eps: float = EPS
) -> LayerNorm | RMSNorm | GroupNorm | BatchNorm:
    """Builds the normalisation `norm` for `features` features along `feature_dim`.

    Use it too for the normalisation that closes a stack whose spec has a `closing_norm`.

    :param norm: one of NORMS.
    :param feature_dim: -1 (text) or 1 (images).
    :raises SettingError: the name is unknown, gn1 or bn is used on sequences, or eps is not a number of at least 0.
    """
    check_features(features, feature_dim)
    _check_eps(eps)
    if norm == "ln":
        return LayerNorm(features, feature_dim=feature_dim, eps=eps)
    if norm == "rms":
        return RMSNorm(features, feature_dim=feature_dim, eps=eps)
    if norm not in NORMS_OF_IMAGES:
        raise SettingError.of_value("norm", norm, f"{' or '.join(NORMS)}{did_you_mean(norm, NORMS)}")
    if feature_dim == -1:
        raise SettingError.of_value("norm", norm, NORMS_OF_TEXT)
    return GroupNorm(features, eps=eps) if norm == "gn1" else BatchNorm(features, eps=eps)
