"""Whether a training's model is compiled by torch.compile unless somebody says so."""

from __future__ import annotations

import os
import shutil

import torch

from rskip.machine.device import multiplies_bfloat16_in_tiles
from rskip.vision.settings import TrainingSettings

EPOCH = 50_000  # training images of CIFAR-10 and of CIFAR-100
FEWEST_IMAGES = 20 * EPOCH  # docs/vision.md has what compiling takes and gains


def worth_compiling(settings: TrainingSettings, device: torch.device, *, processes: int = 1) -> bool:
    """Whether compiling was measured to gain: one process in bfloat16 on a CPU with AMX, many images.

    Compiling takes minutes, and needs a C++ compiler, $CXX or g++. On other CPUs convolutions take so much of the time
    that what it saves elsewhere hardly shows; on GPUs it was not measured.
    """
    images = (settings.epochs or 0) * EPOCH or (settings.iterations or 0) * settings.batch_size
    return (
        device.type == "cpu"
        and processes == 1
        and settings.precision == "bfloat16"
        and images >= FEWEST_IMAGES
        and multiplies_bfloat16_in_tiles()
        and shutil.which(os.environ.get("CXX") or "g++") is not None
    )
