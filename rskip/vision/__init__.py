"""Provides image models with any residual connection, and classifiers.

Data, training and evaluation are in rskip.vision.data, rskip.vision.training and rskip.vision.evaluation.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rskip.vision.cifar_resnet import (
        PreActResNet,
        preact_resnet,
        preact_resnet20,
        preact_resnet32,
        preact_resnet44,
        preact_resnet56,
        preact_resnet110,
        preact_resnet164,
    )
    from rskip.vision.classifier import Classifier, Prediction
    from rskip.vision.imagenet_resnet import torchvision_resnet
    from rskip.vision.transforms import CifarClassification

__all__ = [
    "CifarClassification",
    "Classifier",
    "PreActResNet",
    "Prediction",
    "preact_resnet",
    "preact_resnet20",
    "preact_resnet32",
    "preact_resnet44",
    "preact_resnet56",
    "preact_resnet110",
    "preact_resnet164",
    "torchvision_resnet",
]

_HOMES = {
    "CifarClassification": "transforms",
    "Classifier": "classifier",
    "Prediction": "classifier",
    "torchvision_resnet": "imagenet_resnet",
}


def __getattr__(name: str) -> object:
    # Imported on first use: the settings, which define command-line flags, don't need torch, which loads for a second.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'cifar_resnet')}"), name)
