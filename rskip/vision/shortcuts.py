"""The shortcut of a block: the identity, or what brings its input to the branch's width and resolution.

N batch, C channels, H, W.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from rskip.settings.nearest import did_you_mean


class ZeroPad(nn.Module):
    """Every `stride`-th pixel, and zeros for the new channels, which come last: no parameters.

    Source: He et al. 2016a, option A; that the zeros come last is fb.resnet.torch's choice.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        assert outputs >= inputs, (inputs, outputs)
        self.new_channels = outputs - inputs
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        # as a pooling, since the gradient of x[:, :, ::2, ::2] would not be channels_last
        pixels = F.avg_pool2d(x, 1, stride=self.stride)  # (N, C, H, W) -> (N, C, H / stride, W / stride)
        return F.pad(pixels, (0, 0, 0, 0, 0, self.new_channels))  # -> (N, outputs, H / stride, W / stride)

    def extra_repr(self) -> str:
        return f"new_channels={self.new_channels}, stride={self.stride}"


class Projection(nn.Conv2d):
    """A 1×1 convolution without bias. Source: He et al. 2016a, option B; 2016b's own code."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__(inputs, outputs, kernel_size=1, stride=stride, bias=False)


SHORTCUTS: dict[str, type[ZeroPad | Projection]] = {"zero_pad": ZeroPad, "projection": Projection}


def build_shortcut(name: str, inputs: int, outputs: int, *, stride: int) -> nn.Module:
    """The shortcut called `name` ("zero_pad" or "projection") where width or resolution change, else the identity.

    :raises ValueError: for an unknown name.
    """
    if name not in SHORTCUTS:
        known = " and ".join(SHORTCUTS)
        raise ValueError(f"unknown shortcut {name!r}{did_you_mean(str(name), SHORTCUTS)}; known: {known}")
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return SHORTCUTS[name](inputs, outputs, stride=stride)
