"""Image models with residual connections of one's choice, their weights and what their input must be.

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
from rskip.vision.preact_resnet_weights import (
    PreActResNet20_Weights,
    PreActResNet32_Weights,
    PreActResNet44_Weights,
    PreActResNet56_Weights,
    PreActResNet110_Weights,
    PreActResNet164_Weights,
)
from rskip.vision.torchvision_resnet import torchvision_resnet
from rskip.vision.transforms import CifarClassification
from rskip.vision.weights import Weights, WeightsEnum

__all__ = [
    "CifarClassification",
    "Classifier",
    "PreActResNet",
    "PreActResNet20_Weights",
    "PreActResNet32_Weights",
    "PreActResNet44_Weights",
    "PreActResNet56_Weights",
    "PreActResNet110_Weights",
    "PreActResNet164_Weights",
    "Prediction",
    "Weights",
    "WeightsEnum",
    "preact_resnet",
    "preact_resnet20",
    "preact_resnet32",
    "preact_resnet44",
    "preact_resnet56",
    "preact_resnet110",
    "preact_resnet164",
    "torchvision_resnet",
]
