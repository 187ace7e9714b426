"""Pre-activation blocks, joined by the connections that they are given. Source: He et al. 2016b.

N batch, C channels, H, W. Member names are checkpoint API: `bn1`, `conv1`, `bn2`, `conv2` (in bottlenecks also `bn3`,
`conv3`), `shortcut`, `connection`.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from rskip.connections import ConnectionSpec
from rskip.connections.norms import BatchNorm
from rskip.vision.image_connections import image_connection
from rskip.vision.shortcuts import Projection, build_shortcut


class PreActivationBlock(nn.Module):
    """y = connection(shortcut(x), F(a)) with a = ReLU(BN(x)): the branch F begins with an activation of its input.

    The shortcut reads x itself, with two exceptions where it reads a, so that the activation sits before the split: in
    the network's first block (He et al. 2016b, appendix), and where it is a projection, as in He's published code
    (KaimingHe/resnet-1k-layers, "common BN, ReLU"). A zero-padded shortcut keeps x: it is the clean path that the
    paper argues for, and its text moves no activation but the first and the last.

    :param inputs: channels of x.
    :param width: channels of the branch's 3×3 convolutions; `expansion` times as many leave the block.
    :param stride: of the branch's first convolution and of the shortcut; 2 halves H and W.
    :param connection: joins shortcut and branch.
    :param shortcut: its kind where width or resolution change, see rskip.vision.shortcuts.
    :param first: whether it is the network's first block.
    """

    expansion = 1

    def __init__(
        self,
        inputs: int,
        width: int,
        *,
        stride: int = 1,
        connection: ConnectionSpec,
        shortcut: str = "zero_pad",
        first: bool = False,
    ) -> None:
        super().__init__()
        outputs = self.expansion * width
        self.bn1 = BatchNorm(inputs)
        self.build_branch(inputs, width, stride)
        self.shortcut = build_shortcut(shortcut, inputs, outputs, stride=stride)
        self.activated_shortcut = first or isinstance(self.shortcut, Projection)
        self.connection = image_connection(connection, outputs)

    def build_branch(self, inputs: int, width: int, stride: int) -> None:
        """Makes the branch's members after `bn1`."""
        raise NotImplementedError

    def branch(self, a: Tensor) -> Tensor:
        """F of the activated input. Shape: (N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        a = activate(self.bn1, x)
        shortcut = self.shortcut(a if self.activated_shortcut else x)
        return self.connection(shortcut, self.branch(a))

    def extra_repr(self) -> str:
        return f"activated_shortcut={self.activated_shortcut}"


class BasicBlock(PreActivationBlock):
    """Two 3×3 convolutions. Source: He et al. 2016b, Fig. 4(e)."""

    def build_branch(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = convolution(inputs, width, size=3, stride=stride)
        self.bn2 = BatchNorm(width)
        self.conv2 = convolution(width, width, size=3)

    def branch(self, a: Tensor) -> Tensor:
        return self.conv2(activate(self.bn2, self.conv1(a)))


class Bottleneck(PreActivationBlock):
    """A 1×1, a 3×3 and a 1×1 convolution, four times as wide outside; the first one has the stride.

    Source: KaimingHe/resnet-1k-layers. (torchvision's post-activation bottleneck strides in the 3×3 convolution.)
    """

    expansion = 4

    def build_branch(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = convolution(inputs, width, size=1, stride=stride)
        self.bn2 = BatchNorm(width)
        self.conv2 = convolution(width, width, size=3)
        self.bn3 = BatchNorm(width)
        self.conv3 = convolution(width, self.expansion * width, size=1)

    def branch(self, a: Tensor) -> Tensor:
        return self.conv3(activate(self.bn3, self.conv2(activate(self.bn2, self.conv1(a)))))


def activate(norm: nn.Module, x: Tensor) -> Tensor:
    """ReLU(norm(x)). The ReLU overwrites the normalisation's output, which nothing else reads."""
    return F.relu(norm(x), inplace=True)


def convolution(inputs: int, outputs: int, *, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps H and W, or divides them by `stride`."""
    return nn.Conv2d(inputs, outputs, kernel_size=size, stride=stride, padding=size // 2, bias=False)
