"""Trains language models: training loop, checkpoints and curve."""

from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.training.curve import CurvePoint, read_curve
from rskip.language_modeling.training.train import TrainingResult, train

__all__ = ["CurvePoint", "TrainingResult", "TrainingSettings", "read_curve", "train"]
