"""Training on CIFAR: settings, the loop, its checkpoints and curve."""

from rskip.vision.training.curve import CurvePoint, read_curve
from rskip.vision.training.settings import TrainingSettings
from rskip.vision.training.stopping import Interrupted
from rskip.vision.training.train import TrainingResult, train
from rskip.vision.training.training_run import Diverged

__all__ = ["CurvePoint", "Diverged", "Interrupted", "TrainingResult", "TrainingSettings", "read_curve", "train"]
