"""Defines pre-activation ResNets for CIFAR with any residual connection. Source: He et al. 2016b.

N batch, C channels, H, W.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections import ConnectionSpec
from rskip.connections.norms import BatchNorm, under_autocast
from rskip.nn.image_blocks import image_place
from rskip.settings.errors import SettingError, did_you_mean, shown
from rskip.vision.blocks import (
    BasicBlock,
    Bottleneck,
    activate,
    check_shortcut_input,
    convolution,
    fill_as_linear,
    read_connection,
    reset_connections,
)

SIZE = 32  # pixels per side of CIFAR's images
Spec = str | ConnectionSpec
BLOCKS: dict[str, type[BasicBlock | Bottleneck]] = {"basic": BasicBlock, "bottleneck": Bottleneck}
LAYERS = {"basic": 6, "bottleneck": 9}  # convolutions in three blocks, one of each stage
AUTOCAST_TYPES = (torch.float32, torch.bfloat16, torch.float16)  # types that autocast converts
_DEEPEST = 2000  # He et al. (2016b) have 1001 layers


class PreActResNet(nn.Module):
    """A 3×3 convolution, three stages of n blocks, BN + ReLU, an average and a linear map.

    The second and the third stage halve the resolution: CIFAR's images have 32², 16² and 8² pixels in the stages.

    In the first block the activation comes before the split into shortcut and branch. The last BN + ReLU follows the
    last block's connection (He et al. 2016b, appendix). Convolutions start He-normal by fan-out. The linear map starts
    as in nn.Linear, but with bias 0. The weights of gates start like the linear map's.

    Checkpoints depend on the member names `conv1`, `layer1` to `layer3` (with blocks by number, see
    rskip.vision.blocks), `bn` and `fc`.

    :param depth: 6n + 2 (20, 32, 44, 56, 110, ...) with block="basic", 9n + 2 (164, 1001, ...) with "bottleneck".
    :param connection: connection of shortcut and branch in every block: a spec such as "2rskip+ln".
    :param num_classes: number of classes.
    :param shortcut: "zero_pad" or "projection", see rskip.vision.blocks.
    :param shortcut_input: input of a zero-padded shortcut: "raw" or "activated", see rskip.vision.blocks.
    :param block: "basic" (two 3×3 convolutions) or "bottleneck".
    :param size: pixels per side of the images. No parameter depends on it.
    :raises ValueError: an argument is not valid.
    """

    def __init__(
        self,
        depth: int,
        connection: Spec = "1xskip",
        num_classes: int = 10,
        *,
        shortcut: str = "zero_pad",
        shortcut_input: str = "raw",
        block: str = "basic",
        size: int = SIZE,
    ) -> None:
        super().__init__()
        blocks_per_stage = blocks_per_stage_of(depth, block)
        if isinstance(size, bool) or not isinstance(size, int) or not 8 <= size <= 1024:
            raise SettingError.of_value("size", size, "a whole number from 8 to 1024")
        if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 1:
            raise ValueError(f"num_classes must be a whole number of at least 1, not {shown(num_classes)}")
        if num_classes > 10**6:
            raise ValueError(f"num_classes must be at most 1,000,000, not {shown(num_classes)}")
        check_shortcut_input(shortcut_input, shortcut)
        spec = read_connection(connection)
        self._config: dict[str, Any] = {
            "depth": depth,
            "connection": str(spec),
            "num_classes": num_classes,
            "shortcut": shortcut,
            "block": block,
        }
        if shortcut_input != "raw":  # older configs lack it
            self._config["shortcut_input"] = shortcut_input
        if size != SIZE:
            self._config["size"] = size
        self._size = size
        kind = BLOCKS[block]

        places = (image_place(block, 3 * blocks_per_stage) for block in range(1, 3 * blocks_per_stage + 1))

        def stage(inputs: int, width: int, **first_block: Any) -> nn.Sequential:
            options = {"shortcut_input": shortcut_input, **first_block}
            blocks = [kind(inputs, width, connection=spec, shortcut=shortcut, place=next(places), **options)]
            inputs = kind.expansion * width
            while len(blocks) < blocks_per_stage:
                blocks.append(kind(inputs, width, connection=spec, shortcut=shortcut, place=next(places)))
            return nn.Sequential(*blocks)

        self.conv1 = convolution(3, 16, size=3)
        self.layer1 = stage(16, 16, first=True)
        self.layer2 = stage(kind.expansion * 16, 32, stride=2)
        self.layer3 = stage(kind.expansion * 32, 64, stride=2)
        self.bn = BatchNorm(kind.expansion * 64)
        self.fc = nn.Linear(kind.expansion * 64, num_classes)
        self.reset_parameters()

    @property
    def config(self) -> dict[str, Any]:
        """Plain values for `preact_resnet(**config)`, which builds the same model. The connection is text."""
        return dict(self._config)

    def reset_parameters(self) -> None:
        """Sets every parameter to its initial value, and BN's running statistics to means of 0 and variances of 1."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.reset_parameters()
        fill_as_linear(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        reset_connections(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits. Shape: (N, 3, size, size) -> (N, num_classes).

        :param images: normalised images (see rskip.vision.CifarClassification) in the parameters' type, or under
            autocast.
        :raises ValueError: the images have another shape or type.
        """
        self._check(images)
        x = self.layer1(self.conv1(images))  # (N, C, size, size)
        x = self.layer3(self.layer2(x))  # (N, 4C, size / 4, size / 4)
        x = activate(self.bn, x).mean(dim=(2, 3))  # (N, 4C)
        return self.fc(x)

    def _check(self, images: Tensor) -> None:
        size = self._size
        if not isinstance(images, Tensor):
            raise ValueError(f"images must be a tensor (N, 3, {size}, {size}), not a {type(images).__name__}")
        if images.dim() != 4 or images.shape[1:] != (3, size, size):
            one = "; one image as a batch: images[None]" if images.shape == (3, size, size) else ""
            raise ValueError(f"images of shape {tuple(images.shape)}: expected (N, 3, {size}, {size}){one}")
        expected = self.conv1.weight.dtype
        if images.dtype != expected and not (images.dtype in AUTOCAST_TYPES and under_autocast(images.device)):
            cast = f"; cast them with .to({expected})" if images.is_floating_point() else ""
            raise ValueError(
                f"images of {images.dtype}: expected normalised images of {expected} (rskip.vision.CifarClassification "
                f"makes them, in float32{cast})"
            )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._config.items())


def preact_resnet(
    depth: int,
    connection: Spec = "1xskip",
    num_classes: int = 10,
    *,
    shortcut: str = "zero_pad",
    shortcut_input: str = "raw",
    block: str = "basic",
    size: int = SIZE,
    weights: None = None,
) -> PreActResNet:
    """Builds a `PreActResNet`, which describes the arguments.

    :param weights: must be None. `rskip.load` returns trained models.
    :raises ValueError: an argument is not valid.
    """
    if weights is not None:
        raise ValueError(
            f"weights is {weights!r}: trained models are loaded by name, such as "
            "rskip.load('preact_resnet20_2rskip_ln.cifar10'); rskip.zoo.list_models() has them"
        )
    return PreActResNet(
        depth, connection, num_classes, shortcut=shortcut, shortcut_input=shortcut_input, block=block, size=size
    )


def preact_resnet20(connection: Spec = "1xskip", num_classes: int = 10, **options: Any) -> PreActResNet:
    """PreAct-ResNet-20: 9 basic blocks. `options` as for `preact_resnet`."""
    return preact_resnet(20, connection, num_classes, **options)


def preact_resnet32(connection: Spec = "1xskip", num_classes: int = 10, **options: Any) -> PreActResNet:
    """PreAct-ResNet-32: 15 basic blocks. `options` as for `preact_resnet`."""
    return preact_resnet(32, connection, num_classes, **options)


def preact_resnet44(connection: Spec = "1xskip", num_classes: int = 10, **options: Any) -> PreActResNet:
    """PreAct-ResNet-44: 21 basic blocks. `options` as for `preact_resnet`."""
    return preact_resnet(44, connection, num_classes, **options)


def preact_resnet56(connection: Spec = "1xskip", num_classes: int = 10, **options: Any) -> PreActResNet:
    """PreAct-ResNet-56: 27 basic blocks. `options` as for `preact_resnet`."""
    return preact_resnet(56, connection, num_classes, **options)


def preact_resnet110(connection: Spec = "1xskip", num_classes: int = 10, **options: Any) -> PreActResNet:
    """PreAct-ResNet-110, the papers' model: 54 basic blocks. `options` as for `preact_resnet`."""
    return preact_resnet(110, connection, num_classes, **options)


def preact_resnet164(connection: Spec = "1xskip", num_classes: int = 10, **options: Any) -> PreActResNet:
    """PreAct-ResNet-164: 54 bottlenecks, with projections as in He's code. `options` as for `preact_resnet`."""
    return preact_resnet(164, connection, num_classes, **{"block": "bottleneck", "shortcut": "projection", **options})


def blocks_per_stage_of(depth: int, block: str) -> int:
    """The number of blocks in each of the three stages.

    :raises ValueError: the block is unknown, or the depth is not possible with such blocks.
    """
    if block not in tuple(BLOCKS):
        raise ValueError(f"unknown block {shown(block)}{did_you_mean(block, BLOCKS)}; known: {' and '.join(BLOCKS)}")
    layers = LAYERS[block]
    form = f"{layers}n+2 with {block} blocks"
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise SettingError.of_value("depth", depth, f"a whole number, {form}")
    if depth > _DEEPEST:
        raise SettingError.of_value("depth", depth, f"at most {_DEEPEST}, {form}")
    blocks, rest = divmod(depth - 2, layers)
    if blocks < 1:
        raise SettingError.of_value("depth", depth, form, advice=f"the smallest is {layers + 2}")
    if rest:
        lower = depth - rest
        raise SettingError.of_value("depth", depth, form, advice=f"the nearest are {lower} and {lower + layers}")
    return blocks
