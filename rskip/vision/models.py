"""Builds and names models from their config, the plain values of their architecture.

A config has the arguments of `preact_resnet` or of `torchvision_resnet`. Only the latter has a `name`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rskip.vision.cifar_resnet import SIZE, preact_resnet
from rskip.vision.imagenet_resnet import torchvision_resnet
from rskip.vision.settings import TrainingSettings


def model_config(settings: TrainingSettings, num_classes: int, *, size: int | None = None) -> dict[str, Any]:
    """The config of the model that these settings train.

    :param size: pixels per side of its images; None: those of a dataset.
    """
    if settings.model != "preact_resnet":
        return {"name": settings.model, "connection": settings.connection, "num_classes": num_classes}
    config = {
        **{name: getattr(settings, name) for name in ("depth", "connection")},
        "num_classes": num_classes,
        **{name: getattr(settings, name) for name in ("shortcut", "block")},
    }
    if settings.shortcut_input != "raw":  # as in `PreActResNet.config`
        config["shortcut_input"] = settings.shortcut_input
    if size not in (None, SIZE):
        config["size"] = size
    return config


def build_model(config: Mapping[str, Any]) -> nn.Module:
    """Builds the model of a config, with initial weights.

    :raises ValueError: a value is not valid, or torchvision is missing.
    """
    return torchvision_resnet(**config) if "name" in config else preact_resnet(**config)


def model_name(config: Mapping[str, Any]) -> str:
    """The model's name, such as `PreAct-ResNet-20, 2rskip+ln`."""
    name = config["name"] if "name" in config else f"PreAct-ResNet-{config['depth']}"
    return f"{name}, {config['connection']}"
