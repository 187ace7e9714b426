"""Defines pre-activation blocks with any connection.

N batch, C channels, H, W. Checkpoints depend on the member names `bn1`, `conv1`, `bn2`, `conv2` (in bottlenecks also
`bn3`, `conv3`), `shortcut` and `connection`. Source: He et al. 2016b.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.connections import HOST_NEEDS, Connection, ConnectionSpec, Place, build_connection
from rskip.connections.norms import BatchNorm
from rskip.nn import adapt
from rskip.settings.errors import SettingError


def image_connection(spec: ConnectionSpec, features: int, place: Place | None = None) -> Connection:
    """The connection that `spec` names, for x and f of shape (N, features, H, W).

    :raises SettingError: it works only on sequences, changes the branch's input, or changes the inside of the branch.
    """
    connection = build_connection(spec, features, feature_dim=1, place=place, host_supplies=HOST_NEEDS)
    x = torch.zeros(1, features, 1, 1)
    if connection.before(x)[0] is not x or connection.host_needs:
        expected = "a connection that changes neither the input nor the inside of the branch, for blocks of a ResNet"
        raise SettingError.of_value("connection", str(spec), expected)
    return connection


class PreActivationBlock(nn.Module):
    """y = connection(shortcut(x), F(a)) with a = ReLU(BN(x)), where F is the residual branch.

    In general the shortcut reads x. It reads a in the network's first block (He et al. 2016b, appendix), and if it is a
    projection, as in He's published code (KaimingHe/resnet-1k-layers, "common BN, ReLU"). The input of a zero-padded
    shortcut is `shortcut_input`.

    :param inputs: channels of x.
    :param width: channels of the branch's 3×3 convolutions. The block has `expansion` times as many outputs.
    :param stride: stride of the branch's first convolution and of the shortcut; 2 halves H and W.
    :param connection: connection of shortcut and branch; None for a plain addition, which `adapt` replaces.
    :param shortcut: kind of the shortcut if width or resolution change: "zero_pad" or "projection".
    :param shortcut_input: input of a zero-padded shortcut: "raw" x, or the "activated" a.
    :param first: whether it is the network's first block.
    :param place: the block position, for connections that depend on it.
    """

    expansion = 1
    sizes: tuple[int, ...]  # of the branch's convolutions

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        stride: int = 1,
        connection: ConnectionSpec | None,
        shortcut: str = "zero_pad",
        shortcut_input: str = "raw",
        first: bool = False,
        place: Place | None = None,
    ) -> None:
        super().__init__()
        outputs = self.expansion * width
        features = [inputs, *[width] * (len(self.sizes) - 1), outputs]
        for number, size in enumerate(self.sizes, start=1):
            of, to = features[number - 1 : number + 1]
            self.add_module(f"bn{number}", BatchNorm(of))
            self.add_module(f"conv{number}", convolution(of, to, size=size, stride=stride if number == 1 else 1))
        self.shortcut = build_shortcut(shortcut, inputs, outputs, stride=stride)
        padded_activated = isinstance(self.shortcut, ZeroPad) and shortcut_input == "activated"
        self.activated_shortcut = first or isinstance(self.shortcut, nn.Conv2d) or padded_activated
        self.connection = None if connection is None else image_connection(connection, outputs, place)

    def branch(self, a: Tensor) -> Tensor:
        """The residual branch F. Shape: (N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        for number in range(1, len(self.sizes) + 1):
            if number > 1:
                a = activate(getattr(self, f"bn{number}"), a)
            a = getattr(self, f"conv{number}")(a)
        return a

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        a = activate(self.get_submodule("bn1"), x)
        shortcut = self.shortcut(a if self.activated_shortcut else x)
        if self.connection is None:
            return shortcut + self.branch(a)
        y = self.connection.after(self.connection.before(shortcut)[1], self.branch(a))
        assert isinstance(y, Tensor)  # `image_connection` refuses others
        return y

    def extra_repr(self) -> str:
        return f"activated_shortcut={self.activated_shortcut}"


class BasicBlock(PreActivationBlock):
    """Two 3×3 convolutions. Source: He et al. 2016b, Fig. 4(e)."""

    sizes = (3, 3)


class Bottleneck(PreActivationBlock):
    """A 1×1, a 3×3 and a 1×1 convolution. The block is four times as wide as the branch.

    The first convolution has the stride, as in KaimingHe/resnet-1k-layers. (In torchvision's post-activation bottleneck
    the 3×3 convolution has it.)
    """

    expansion = 4
    sizes = (1, 3, 1)


def activate(norm: nn.Module, x: Tensor) -> Tensor:
    """ReLU(norm(x)). The ReLU overwrites the normalisation's output."""
    return F.relu(norm(x), inplace=True)


def convolution(inputs: int, outputs: int, *, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, which divides H and W by `stride`."""
    return nn.Conv2d(inputs, outputs, kernel_size=size, stride=stride, padding=size // 2, bias=False)


class ZeroPad(nn.Module):
    """Every `stride`-th pixel, followed by zeros for the new channels. It has no parameters.

    Source: He et al. 2016a, option A, with the order of channels of fb.resnet.torch.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        assert outputs >= inputs, (inputs, outputs)
        self.new_channels = outputs - inputs
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        # pooling, since the gradient of x[:, :, ::2, ::2] would not be channels_last
        pixels = F.avg_pool2d(x, 1, stride=self.stride)  # (N, C, H, W) -> (N, C, H / stride, W / stride)
        return F.pad(pixels, (0, 0, 0, 0, 0, self.new_channels))  # -> (N, outputs, H / stride, W / stride)

    def extra_repr(self) -> str:
        return f"new_channels={self.new_channels}, stride={self.stride}"


def build_shortcut(name: str, inputs: int, outputs: int, *, stride: int) -> nn.Module:
    """The shortcut `name` if width or resolution change, else the identity.

    "zero_pad" is a `ZeroPad`, "projection" a 1×1 convolution without bias (He et al. 2016a, option B, and the code of
    2016b).
    """
    if inputs == outputs and stride == 1:
        return nn.Identity()
    if name == "zero_pad":
        return ZeroPad(inputs, outputs, stride=stride)
    return convolution(inputs, outputs, size=1, stride=stride)


def put_connections(model: nn.Module, spec: ConnectionSpec, **options: Any) -> None:
    """Replaces the additions by connections (`adapt`, with its options); the spec is only in the model's config."""
    adapt(model, spec, **options)
    for module in list(model.modules()):
        module._modules.pop("spec_record", None)


def reset_connections(model: nn.Module) -> None:
    """Sets the parameters of all connections to their initial values. Gates are filled by `fill_as_linear`."""
    for module in model.modules():
        if isinstance(module, Connection):
            module.reset_parameters(weight_init=fill_as_linear)


def fill_as_linear(weight: Tensor) -> None:
    """Fills a weight like nn.Linear: uniform in ±1/√inputs."""
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
