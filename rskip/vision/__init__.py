"""Provides image models with any residual connection, and classifiers.

Data, training and evaluation are in rskip.vision.data, rskip.vision.training and rskip.vision.evaluation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

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
    from rskip.vision.classifier import CifarClassification, Classifier, Prediction
    from rskip.vision.imagenet_resnet import torchvision_resnet
    from rskip.vision.vit import vision_transformer

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
    "vision_transformer",
]

_HOMES = {
    **dict.fromkeys(("CifarClassification", "Classifier", "Prediction"), "classifier"),
    "torchvision_resnet": "imagenet_resnet",
    "vision_transformer": "vit",
}
__getattr__ = imported_on_use(__name__, {name: _HOMES.get(name, "cifar_resnet") for name in __all__})
