"""Labelled pictures in memory."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from rskip.vision.transforms import MEAN, STD


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures, what is on each, and what a model's input is normalised by.

    :param images: uint8. Shape: (N, 3, H, W), 32 by 32 pixels in CIFAR.
    :param labels: numbers of classes, int64. Shape: (N,).
    :param classes: names of the classes, in the order of their numbers.
    :param mean: of each channel, where 255 counts as 1: of the training images, for the test images too. Default:
        CIFAR-10's.
    :param std: of each channel, likewise.
    :raises ValueError: tensors of another shape or type.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, float, float] = MEAN["cifar10"]
    std: tuple[float, float, float] = STD["cifar10"]

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.dim() != 4 or self.images.shape[1] != 3:
            raise ValueError(
                f"images are {self.images.dtype} of shape {tuple(self.images.shape)}: "
                "expected torch.uint8 of shape (N, 3, height, width)"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"labels are {self.labels.dtype} of shape {tuple(self.labels.shape)}: "
                f"expected torch.int64 of shape ({len(self.images)},), one for each image"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> ImageSet:
        """The same on `device`."""
        return dataclasses.replace(self, images=self.images.to(device), labels=self.labels.to(device))
