"""Builds timm's vision transformer with any residual connection, through `rskip.nn.adapt`.

timm is imported only when such a model is built. N batch, H, W.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from torch import nn

from rskip.connections import ConnectionSpec, parse_connection
from rskip.extras import extra
from rskip.settings.check import check, to_plain
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count
from rskip.vision.blocks import put_connections
from rskip.vision.cifar_resnet import SIZE


class VisionTransformerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `vision_transformer`."""

    depth: Count
    connection: str
    num_classes: Annotated[int, msgspec.Meta(ge=1, le=10**6)]
    features: Count
    heads: Count
    patch: Count
    size: Annotated[int, msgspec.Meta(ge=8, le=1024)] = SIZE

    def __post_init__(self) -> None:
        """:raises SettingError: a value is wrong."""
        check(self)
        if self.features % self.heads:
            raise SettingError.of_value("features", self.features, f"a multiple of the {self.heads} heads")
        if self.size % self.patch:
            raise SettingError.of_value("patch", self.patch, f"a divisor of the images' {self.size} pixels per side")


def vision_transformer(
    depth: int = 12,
    connection: str | ConnectionSpec = "prenorm+ln",
    num_classes: int = 10,
    *,
    features: int = 192,
    heads: int = 3,
    patch: int = 4,
    size: int = SIZE,
) -> nn.Module:
    """Builds timm's `VisionTransformer` with a connection in every block.

    Shape: (N, 3, size, size) -> (N, num_classes). The classifier reads the mean over the patches (no class token). With
    prenorm+ln the state dict and the outputs are timm's own. Source: Dosovitskiy et al. (2021),
    https://arxiv.org/abs/2010.11929.

    :param depth: number of blocks, of attention and a feed-forward branch each.
    :param connection: connection of both branches, such as "2rskip+ln" or "mhc".
    :param num_classes: number of classes.
    :param features: features of a patch, a multiple of `heads`. The feed-forward branch has four times as many.
    :param heads: attention heads.
    :param patch: pixels per side of a patch, a divisor of `size`.
    :param size: pixels per side of the images.
    :raises ValueError: an argument is not valid, or timm is missing.
    """
    spec = connection if isinstance(connection, ConnectionSpec) else parse_connection(connection)
    shape: dict[str, Any] = {"depth": depth, "features": features, "heads": heads, "patch": patch, "size": size}
    config = VisionTransformerConfig(connection=str(spec), num_classes=num_classes, **shape)
    with extra("vision", what="a vision transformer"):
        from timm.models.vision_transformer import VisionTransformer
    model: Any = VisionTransformer(
        img_size=size, patch_size=patch, num_classes=num_classes, embed_dim=features, depth=depth, num_heads=heads,
        class_token=False, global_pool="avg",
    )  # fmt: skip
    put_connections(model, spec)
    model.config = to_plain(config)
    return cast(nn.Module, model)
