"""Image models with residual connections of one's choice, and classifiers of them.

Data, training and evaluation are in rskip.vision.data, rskip.vision.training and rskip.vision.evaluation.
"""

from rskip.vision.classifier import Classifier, Prediction
from rskip.vision.preact_resnet import (
    PreActResNet,
    preact_resnet,
    preact_resnet20,
    preact_resnet32,
    preact_resnet44,
    preact_resnet56,
    preact_resnet110,
    preact_resnet164,
)
from rskip.vision.torchvision_resnet import torchvision_resnet
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
