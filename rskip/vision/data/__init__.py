"""Loads datasets and your own images, and makes batches of them on the model's device."""

from rskip.vision.data.cifar import load_cifar
from rskip.vision.data.loader import ImageSet, TrainingBatches, evaluation_batches

__all__ = ["ImageSet", "TrainingBatches", "evaluation_batches", "load_cifar"]
