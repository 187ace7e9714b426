"""torchvision's ResNets: y = ReLU(connection(shortcut(x), F(x))); tested with torchvision 0.29.2."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rskip.nn.hosts.host import AdaptedImageBlock, Host, register_host

RESNET = "torchvision.models.resnet"


class TorchvisionBlock(AdaptedImageBlock):
    """The forward of torchvision's `BasicBlock` and `Bottleneck`."""

    def forward(self, x: Tensor) -> Tensor:
        block: Any = self
        f = block.bn2(block.conv2(block.relu(block.bn1(block.conv1(x)))))
        if hasattr(block, "conv3"):  # only bottlenecks have a third
            f = block.bn3(block.conv3(block.relu(f)))
        shortcut = x if block.downsample is None else block.downsample(x)
        y: Tensor = block.relu(self.join(shortcut, f))
        return y


def _features(block: Any) -> int:
    features: int = (block.conv3 if hasattr(block, "conv3") else block.conv2).out_channels
    return features


for kind, digest in (("BasicBlock", "348d51bd62b1fa24"), ("Bottleneck", "fee37cb7b358c435")):
    register_host(
        Host(
            name=f"torchvision {kind}",
            block=f"{RESNET}.{kind}",
            adapted=TorchvisionBlock,
            sources=(f"{RESNET}.{kind}.forward",),
            digests={"0.29.2": digest},
            features=_features,
        )
    )
