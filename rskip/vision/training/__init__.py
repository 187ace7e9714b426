"""Trains image models: settings, training loop, checkpoints and curve."""

from rskip.tasks.loop import Diverged, Interrupted, Observer
from rskip.vision.settings import TrainingSettings
from rskip.vision.training.curve import CurvePoint, read_curve
from rskip.vision.training.train import TrainingResult, train
from rskip.vision.training.training_folder import TrainingFolder

__all__ = [
    "CurvePoint",
    "Diverged",
    "Interrupted",
    "Observer",
    "TrainingFolder",
    "TrainingResult",
    "TrainingSettings",
    "read_curve",
    "train",
]
