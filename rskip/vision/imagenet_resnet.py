"""torchvision's ResNets with any residual connection: ImageNet-sized images, activation after the addition.

N batch, C channels, H, W. torchvision is imported only when such a model is built.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from rskip.connections import ConnectionSpec, Place
from rskip.connections.connection import one_tensor
from rskip.machine.extras import extra
from rskip.settings.errors import did_you_mean
from rskip.vision.blocks import image_connection, image_place, read_connection, reset_connections

NAMES = (
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "resnext101_64x4d",
    "wide_resnet50_2",
    "wide_resnet101_2",
)


class ConnectedBlock(nn.Module):
    """torchvision's block with its addition replaced: y = ReLU(connection(shortcut(x), F(x))).

    It takes over the block's members under torchvision's names, so the state dict keeps them; its own is `connection`.
    """

    def __init__(self, block: Any, connection: ConnectionSpec, place: Place) -> None:
        super().__init__()
        self.conv1, self.bn1 = block.conv1, block.bn1
        self.conv2, self.bn2 = block.conv2, block.bn2
        self.conv3: Any = getattr(block, "conv3", None)  # only bottlenecks have a third
        self.bn3: Any = getattr(block, "bn3", None)
        self.relu = block.relu
        self.downsample = block.downsample
        self.connection = image_connection(connection, (self.bn3 or self.bn2).num_features, place)

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (N, C, H, W) -> (N, outputs, H / stride, W / stride)."""
        f = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.conv3 is not None:
            f = self.bn3(self.conv3(self.relu(f)))
        shortcut = x if self.downsample is None else self.downsample(x)
        _, kept = self.connection.before(shortcut)
        return F.relu(one_tensor(self.connection.after(kept, f), self.connection))


def torchvision_resnet(
    name: str,
    connection: str | ConnectionSpec = "1xskip",
    *,
    num_classes: int | None = None,
    weights: Any = None,
    progress: bool = True,
) -> nn.Module:
    """torchvision's model `name`, its blocks joined by `connection`. Shape: (N, 3, H, W) -> (N, num_classes).

    With 1xskip the state dict, the loaded weights and the outputs are torchvision's own. Weights were trained for that
    sum, so they are refused with any other connection; to fine-tune from them, load them into the model without them:
    `model.load_state_dict(torchvision_weights.get_state_dict(), strict=False)`.

    :param name: one of NAMES, such as "resnet18".
    :param num_classes: as the weights have it, or 1000.
    :param weights: torchvision's weights of that model or their name, such as "IMAGENET1K_V1".
    :param progress: whether a download shows its progress.
    :raises ValueError: for a value that is not valid, or where torchvision is missing.
    """
    if name not in NAMES:
        raise ValueError(f"unknown model {name!r}{did_you_mean(str(name), NAMES)}; known: {', '.join(NAMES)}")
    spec = read_connection(connection)
    if weights is not None and str(spec) != "1xskip":
        raise ValueError(f"torchvision's weights of {name} were trained with 1xskip, not {spec}: leave weights out")
    with extra("vision", what=name):
        from torchvision import models
    classes: dict[str, int] = {} if num_classes is None else {"num_classes": num_classes}
    model: Any = models.get_model(name, weights=_verify(models, name, weights), progress=progress, **classes)
    stages = (model.layer1, model.layer2, model.layer3, model.layer4)
    blocks = [(stage, number) for stage in stages for number in range(len(stage))]
    for block, (stage, number) in enumerate(blocks, start=1):
        stage[number] = ConnectedBlock(stage[number], spec, image_place(block, len(blocks)))
    reset_connections(model)
    return model


def _verify(models: Any, name: str, weights: Any) -> Any:
    """torchvision's own check of `weights`, its errors as one line."""
    known = models.get_model_weights(name)
    try:
        return known.verify(weights)
    except (KeyError, TypeError) as error:
        raise ValueError(f"unknown weights {weights!r} of {name}; known: {', '.join(known.__members__)}") from error
