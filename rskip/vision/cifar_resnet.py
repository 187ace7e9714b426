"""Defines pre-activation ResNets for CIFAR with any residual connection. Source: He et al. 2016b.

N batch, C channels, H, W.
"""

from __future__ import annotations

import warnings
from typing import Annotated, Any, Literal

import msgspec
import torch
from torch import Tensor, nn

from rskip.connections import ConnectionSpec, Place, parse_connection
from rskip.connections.norms import BatchNorm
from rskip.formulas.spec import works_on
from rskip.settings.check import check, to_plain
from rskip.settings.errors import SettingError
from rskip.vision.blocks import (
    BasicBlock,
    Bottleneck,
    activate,
    convolution,
    fill_as_linear,
    put_connections,
    reset_connections,
)
from rskip.vision.settings import blocks_per_stage_of

SIZE = 32  # pixels per side of CIFAR's images
Spec = str | ConnectionSpec
BLOCKS: dict[str, type[BasicBlock | Bottleneck]] = {"basic": BasicBlock, "bottleneck": Bottleneck}


class PreActConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of `preact_resnet`. Older configs lack those with defaults."""

    depth: int
    connection: str
    num_classes: Annotated[int, msgspec.Meta(ge=1, le=10**6)]
    shortcut: Literal["zero_pad", "projection"]
    block: Literal["basic", "bottleneck"]
    shortcut_input: Literal["raw", "activated"] = "raw"
    size: Annotated[int, msgspec.Meta(ge=8, le=1024)] = SIZE

    def __post_init__(self) -> None:
        """:raises SettingError: a value is wrong."""
        check(self)
        blocks_per_stage_of(self.depth, self.block)
        if self.shortcut_input == "activated" and self.shortcut != "zero_pad":
            problem = f"is for zero_pad, but the shortcut is a {self.shortcut}, which always reads the activated input"
            raise SettingError("shortcut_input", problem, advice="leave it out")


class PreActResNet(nn.Module):
    """A 3×3 convolution, three stages of n blocks, BN + ReLU, an average and a linear map.

    The second and the third stage halve the resolution: CIFAR's images have 32², 16² and 8² pixels in the stages.

    In the first block the activation comes before the split into shortcut and branch. The last BN + ReLU follows the
    last block's connection (He et al. 2016b, appendix). Convolutions start He-normal by fan-out. The linear map starts
    as in nn.Linear, but with bias 0. The weights of gates start like the linear map's.

    A connection that works only on sequences, such as "hyper", takes the additions' places within each stage, through
    `rskip.nn.adapt`. The first block of a stage, whose shortcut changes x or reads a, keeps its addition.

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
        spec = connection if isinstance(connection, ConnectionSpec) else parse_connection(connection)
        values: Any = {"shortcut": shortcut, "block": block, "shortcut_input": shortcut_input}
        config = PreActConfig(depth=depth, connection=str(spec), num_classes=num_classes, size=size, **values)
        self._config: dict[str, Any] = to_plain(config)
        blocks_per_stage = blocks_per_stage_of(depth, block)
        kind, last = BLOCKS[block], 3 * blocks_per_stage
        own = spec if works_on(spec, feature_dim=1) else None
        places = (Place("network", "block", number, last, number, last) for number in range(1, last + 1))

        def stage(inputs: int, width: int, **first_block: Any) -> nn.Sequential:
            blocks: list[nn.Module] = []
            for options in ({"shortcut_input": shortcut_input, **first_block}, *[{}] * (blocks_per_stage - 1)):
                blocks.append(kind(inputs, width, connection=own, shortcut=shortcut, place=next(places), **options))
                inputs = kind.expansion * width
            return nn.Sequential(*blocks)

        self.conv1 = convolution(3, 16, size=3)
        self.layer1 = stage(16, 16, first=True)
        self.layer2 = stage(kind.expansion * 16, 32, stride=2)
        self.layer3 = stage(kind.expansion * 32, 64, stride=2)
        self.bn = BatchNorm(kind.expansion * 64)
        self.fc = nn.Linear(kind.expansion * 64, num_classes)
        if own is None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "adapt left unchanged")  # the first block of each stage
                put_connections(self, spec, example=torch.zeros(1, 3, size, size))
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
        """
        x = self.layer1(self.conv1(images))  # (N, C, size, size)
        x = self.layer3(self.layer2(x))  # (N, 4C, size / 4, size / 4)
        x = activate(self.bn, x).mean(dim=(2, 3))  # (N, 4C)
        return self.fc(x)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._config.items())


def preact_resnet(depth: int, connection: Spec = "1xskip", num_classes: int = 10, **options: Any) -> PreActResNet:
    """Builds a `PreActResNet`, which describes the arguments and `options`. `rskip.load` returns trained models.

    :raises ValueError: an argument is not valid.
    """
    return PreActResNet(depth, connection, num_classes, **options)


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
