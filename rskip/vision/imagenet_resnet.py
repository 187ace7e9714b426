"""Builds torchvision's ResNets for large images with any residual connection.

`rskip.nn.adapt` replaces the additions, after which the blocks have an activation. torchvision is imported only when
such a model is built. N batch, H, W.
"""

from __future__ import annotations

from typing import Any, get_args

from torch import nn

from rskip.connections import ConnectionSpec, parse_connection
from rskip.extras import extra
from rskip.settings.errors import did_you_mean
from rskip.vision.blocks import put_connections, reset_connections
from rskip.vision.settings import ModelName

NAMES = get_args(ModelName)[2:]  # without preact_resnet and vit


def torchvision_resnet(
    name: str,
    connection: str | ConnectionSpec = "1xskip",
    *,
    num_classes: int | None = None,
    weights: Any = None,
    progress: bool = True,
) -> nn.Module:
    """Builds torchvision's model `name` with a connection in every block. Shape: (N, 3, H, W) -> (N, num_classes).

    With 1xskip the state dict and the outputs are torchvision's own. Other connections refuse torchvision's weights,
    which were trained with 1xskip. To fine-tune them, load them afterwards:
    `model.load_state_dict(torchvision_weights.get_state_dict(), strict=False)`.

    :param name: one of NAMES, such as "resnet18".
    :param num_classes: number of classes (default: that of the weights, or 1000).
    :param weights: torchvision's weights of that model or their name, such as "IMAGENET1K_V1".
    :param progress: whether to show the progress of a download.
    :raises ValueError: an argument is not valid, or torchvision is missing or has other blocks.
    """
    if name not in NAMES:
        raise ValueError(f"unknown model {name!r}{did_you_mean(name, NAMES)}; known: {', '.join(NAMES)}")
    spec = connection if isinstance(connection, ConnectionSpec) else parse_connection(connection)
    if weights is not None and str(spec) != "1xskip":
        raise ValueError(f"torchvision's weights of {name} were trained with 1xskip, not {spec}: leave weights out")
    with extra("vision", what=name):
        from torchvision import models
    classes: dict[str, int] = {} if num_classes is None else {"num_classes": num_classes}
    model: Any = models.get_model(name, weights=weights, progress=progress, **classes)
    put_connections(model, spec)
    reset_connections(model)
    return model
