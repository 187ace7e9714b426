"""Batch normalisation over the images of all processes.

torch.nn.SyncBatchNorm is for GPUs alone; the one here is for CPUs.
Shapes: (N, C, H, W), N images of this process.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as distributed
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.connections.norms import at_least_float32


def with_sync_batch_norm(module: nn.Module, device: torch.device) -> nn.Module:
    """The module with every batch normalisation replaced by one that takes its statistics over all processes.

    Parameters and buffers are the same objects under the same names, so checkpoints don't change.
    """
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)
    if isinstance(module, nn.BatchNorm2d):
        return SyncBatchNorm(module)
    for name, child in module.named_children():
        setattr(module, name, with_sync_batch_norm(child, device))
    return module


class SyncBatchNorm(nn.BatchNorm2d):
    """Batch normalisation whose statistics, in training, are those of all processes' images together.

    Output, gradients and running statistics are what one process would compute from all the images; a gradient here
    is of the sum of the processes' losses. Computed in float32 or better. Source: Ioffe and Szegedy 2015.

    :param norm: what it replaces.
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__(norm.num_features, eps=norm.eps, momentum=norm.momentum)
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked
        self.training = norm.training

    def forward(self, z: Tensor) -> Tensor:
        wide = at_least_float32(z)
        assert self.running_mean is not None and self.running_var is not None
        if not self.training:
            y = F.batch_norm(wide, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
            return y.to(z.dtype)
        y, mean, variance, count = _Normalise.apply(wide, self.weight, self.bias, self.eps)
        with torch.no_grad():
            assert self.num_batches_tracked is not None and self.momentum is not None
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        return y.to(z.dtype)


class _Normalise(torch.autograd.Function):
    """y = w·ẑ + b with ẑ = (z - mean)/sqrt(variance + eps), mean and variance over all processes' positions.

    Backward: dz = w/sqrt(variance + eps) · (g - mean(g) - ẑ·mean(g·ẑ)), means again over all processes; dw and db are
    this process's share, which DistributedDataParallel averages as it does every other.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        positions = torch.full((1,), z.numel() // z.shape[1], dtype=z.dtype, device=z.device)
        sums = torch.cat([z.sum(dim=(0, 2, 3)), positions])  # (C + 1,)
        distributed.all_reduce(sums)
        count = sums[-1]
        mean = sums[:-1] / count  # (C,)
        centred = z - _per_channel(mean)
        squares = centred.square().sum(dim=(0, 2, 3))
        distributed.all_reduce(squares)
        variance = squares / count
        scale = (variance + eps).rsqrt()
        normalised = centred * _per_channel(scale)
        ctx.save_for_backward(normalised, weight, scale, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return normalised * _per_channel(weight) + _per_channel(bias), mean, variance, count

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor, Tensor, None]:
        normalised, weight, scale, count = ctx.saved_tensors
        g = gradients[0]
        dbias, dweight = g.sum(dim=(0, 2, 3)), (g * normalised).sum(dim=(0, 2, 3))
        sums = torch.stack([dbias, dweight])  # (2, C)
        distributed.all_reduce(sums)
        mean_g, mean_gz = sums / count
        dz = (g - _per_channel(mean_g) - normalised * _per_channel(mean_gz)) * _per_channel(weight * scale)
        return dz, dweight, dbias, None


def _per_channel(values: Tensor) -> Tensor:
    """Shape: (C,) -> (1, C, 1, 1)."""
    return values[None, :, None, None]
