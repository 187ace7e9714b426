"""torchvision's ResNets with any residual connection: ImageNet-sized images, activation after the addition.

`rskip.nn.adapt` replaces the additions. N batch, H, W. torchvision is imported only when such a model is built.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from rskip.connections import ConnectionSpec
from rskip.machine.extras import extra
from rskip.nn import adapt
from rskip.settings.errors import did_you_mean
from rskip.vision.blocks import read_connection, reset_connections

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
    :raises ValueError: for a value that is not valid, or where torchvision is missing or has other blocks.
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
    adapt(model, spec)
    del model.layer1[0].spec_record  # the model's config has the spec, and 1xskip keeps torchvision's names
    reset_connections(model)
    return model


def _verify(models: Any, name: str, weights: Any) -> Any:
    """torchvision's own check of `weights`, its errors as one line."""
    known = models.get_model_weights(name)
    try:
        return known.verify(weights)
    except (KeyError, TypeError) as error:
        raise ValueError(f"unknown weights {weights!r} of {name}; known: {', '.join(known.__members__)}") from error
