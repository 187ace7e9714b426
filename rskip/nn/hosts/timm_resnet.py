"""timm's ResNets: y = act(connection(shortcut(x), F(x))); tested with timm 1.0.31.

Squeeze-and-excitation, anti-aliasing, DropBlock and stochastic depth stay parts of the branch.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rskip.nn.hosts.host import AdaptedImageBlock, Host, register_host

RESNET = "timm.models.resnet"


class TimmBasicBlock(AdaptedImageBlock):
    """The forward of timm's `BasicBlock`."""

    def forward(self, x: Tensor) -> Tensor:
        block: Any = self
        f = block.aa(block.act1(block.drop_block(block.bn1(block.conv1(x)))))
        y: Tensor = block.act2(_joined(block, x, block.bn2(block.conv2(f))))
        return y


class TimmBottleneck(AdaptedImageBlock):
    """The forward of timm's `Bottleneck`."""

    def forward(self, x: Tensor) -> Tensor:
        block: Any = self
        f = block.act1(block.bn1(block.conv1(x)))
        f = block.aa(block.act2(block.drop_block(block.bn2(block.conv2(f)))))
        y: Tensor = block.act3(_joined(block, x, block.bn3(block.conv3(f))))
        return y


def _joined(block: Any, x: Tensor, f: Tensor) -> Tensor:
    """y before its activation, from the block's input and the output of the branch's last normalisation."""
    if block.se is not None:
        f = block.se(f)
    if block.drop_path is not None:
        f = block.drop_path(f)
    y: Tensor = block.join(x if block.downsample is None else block.downsample(x), f)
    return y


def _host(adapted: type[AdaptedImageBlock], kind: str, last: str, digest: str) -> Host:
    return Host(
        name=f"timm {kind}",
        block=f"{RESNET}.{kind}",
        adapted=adapted,
        sources=(f"{RESNET}.{kind}.forward",),
        digests={"1.0.31": digest},
        features=lambda block: block.get_submodule(last).out_channels,
    )


register_host(_host(TimmBasicBlock, "BasicBlock", "conv2", "49fbbcc69a43b554"))
register_host(_host(TimmBottleneck, "Bottleneck", "conv3", "76daa125023f1841"))
