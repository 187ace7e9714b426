"""Labelled images, and batches of them that are made on the device. Images in memory are uint8.

Legend: N images of the set, n of a batch, C channels, H, W; S pixels per side of a model's input.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from rskip.machine.extras import extra
from rskip.vision.transforms import MEAN, STD

with extra("vision"):
    import numpy as np

PADDING = 4  # pixels, at each edge before a crop
LEAST_AREA = 0.25  # of the image, that a random resized crop has; its sides' ratio is 3/4 to 4/3


class Pixels(Protocol):
    """Images of one size: a tensor (N, 3, H, W) of uint8, or images that are decoded when they are used."""

    dtype: torch.dtype
    device: torch.device

    @property
    def shape(self) -> torch.Size: ...

    def to(self, device: torch.device | str, /) -> Pixels:
        """The same images on a device. Images that are not in memory are not moved."""

    def index_select(self, dim: int, index: Tensor, /) -> Tensor:
        """The images of these rows. Shape: (n, 3, H, W)."""


@runtime_checkable
class ReadsAhead(Protocol):
    """Images that are decoded faster when the next rows are known."""

    def read_ahead(self, index: Tensor) -> None:
        """Begins to decode the images of these rows, which are used next. Shape: (n,)."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, their classes, and what a model's input is normalised by.

    :param images: uint8. Shape: (N, 3, H, W), 32 by 32 pixels in CIFAR.
    :param labels: numbers of classes, int64. Shape: (N,).
    :param classes: names of the classes, in the order of their numbers.
    :param mean: of each channel, where 255 counts as 1: of the training images, for the test images too. Default:
        CIFAR-10's.
    :param std: of each channel, likewise.
    :param padding: black pixels that training adds at each edge before it crops an image to its size.
    :param size: S: training resizes a random part of each image to it, without padding; evaluation takes the centre.
        None: a model's input has the images' own size.
    :raises ValueError: tensors of another shape or type.
    """

    images: Pixels
    labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, float, float] = MEAN["cifar10"]
    std: tuple[float, float, float] = STD["cifar10"]
    padding: int = PADDING
    size: int | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or len(self.images.shape) != 4 or self.images.shape[1] != 3:
            raise ValueError(
                f"images are {self.images.dtype} of shape {tuple(self.images.shape)}: "
                "expected torch.uint8 of shape (N, 3, height, width)"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"labels are {self.labels.dtype} of shape {tuple(self.labels.shape)}: "
                f"expected torch.int64 of shape ({self.images.shape[0]},), one for each image"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> ImageSet:
        """The same on `device`."""
        images = self.images.to(device)
        return dataclasses.replace(self, images=images, labels=self.labels.to(images.device))

    def chosen(self, rows: Tensor) -> ImageSet:
        """The images of these rows, in memory. Shape of `rows`: (n,)."""
        return dataclasses.replace(self, images=self.images.index_select(0, rows), labels=self.labels[rows])


@dataclass(frozen=True, eq=False)
class _Epoch:
    """The random numbers of an epoch, one for every place in its order.

    :param order: a permutation of the images. Shape: (N,).
    :param crops: as `crop_and_flip` takes them, shape (N, 2), or `resized_crops`, shape (N, 4).
    :param flips: Shape: (N,).
    """

    number: int
    order: Tensor
    crops: Tensor
    flips: Tensor


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """What a rank's part of a batch is made of: all that differs from one batch to the next.

    :param rows: of the images in their set. Shape: (n,).
    :param crops: Shape: (n, 2), or (n, 4) of random resized crops.
    :param flips: Shape: (n,).
    :param count: images of the batch, over all ranks.
    """

    rows: Tensor
    crops: Tensor
    flips: Tensor
    count: int


class TrainingBatches:
    """Training batches: every image once an epoch, in a new order, cropped and flipped at random.

    `batch(iteration)` is a pure function of the seed and the iteration, so a run that resumes at iteration i needs
    to know nothing else. The random numbers of a whole epoch are drawn on the CPU: by a generator whose seed is
    `numpy.random.SeedSequence(seed, spawn_key=(epoch,)).generate_state(1)[0]`, first the order, then the crops, then
    the flips. So a batch is the same on every device and for any number of ranks.

    :param images: those in memory are moved to `device` once, and kept there as uint8.
    :param batch_size: images in a batch, of all ranks together.
    :param seed: 0 or more.
    :param device: where the batches are made.
    :param augment: crop, and flip; the order is new in each epoch without it too.
    :param flip: whether augmenting flips.
    :param rank: this process's number, 0 to world_size - 1; it gets every `world_size`-th image of a batch, from the
        `rank`-th on.
    :param world_size: how many processes share each batch.
    :param dtype: of the images' values; they are computed in float32.
    :param channels_last: lay the batches out with channels last in memory.
    :raises ValueError: no images, a batch size below 1, or a negative seed.
    """

    def __init__(
        self,
        images: ImageSet,
        *,
        batch_size: int,
        seed: int,
        device: torch.device | str,
        augment: bool = True,
        flip: bool = True,
        rank: int = 0,
        world_size: int = 1,
        dtype: torch.dtype = torch.float32,
        channels_last: bool = False,
    ) -> None:
        if not len(images):
            raise ValueError("there are no images to train on: expected at least one")
        if batch_size < 1:
            raise ValueError(f"the batch size is {batch_size}: expected 1 or more")
        if seed < 0:
            raise ValueError(f"the seed is {seed}: expected 0 or more")
        assert 0 <= rank < world_size
        self._images = images.to(device)
        self._mean, self._std = _mean_and_std(images, device)
        self._batch_size = batch_size
        self._seed = seed
        self._augment, self._flip = augment, flip
        self._device = torch.device(device)
        self._rank, self._world_size = rank, world_size
        self._dtype, self._channels_last = dtype, channels_last
        self._epoch: _Epoch | None = None

    @property
    def batches_per_epoch(self) -> int:
        """How many batches show every image once; the last is short where the batch size does not divide them."""
        return -(-len(self._images) // self._batch_size)

    def batch(self, iteration: int) -> tuple[Tensor, Tensor, int]:
        """This rank's part of a batch.

        Fast in order; an iteration of another epoch than the last one's draws that epoch's numbers anew.

        :param iteration: counted from 0 through all epochs.
        :returns: normalised images (n, 3, H, W), their labels (n,), and how many images all ranks have together. n
            is 0 where a short last batch has fewer images than there are ranks.
        """
        plan = self.plan(iteration)
        return *self.make(plan), plan.count

    def plan(self, iteration: int) -> BatchPlan:
        """What `batch` makes this rank's part of."""
        assert iteration >= 0
        number, place = divmod(iteration, self.batches_per_epoch)
        epoch = self._draw(number)
        part, end = self._part(place)
        if isinstance(self._images.images, ReadsAhead) and place + 1 < self.batches_per_epoch:
            self._images.images.read_ahead(epoch.order[self._part(place + 1)[0]])
        begin = place * self._batch_size
        return BatchPlan(epoch.order[part], epoch.crops[part], epoch.flips[part], end - begin)

    def _part(self, place: int) -> tuple[slice, int]:
        """Where an epoch's order has this rank's part of a batch, and where the batch ends."""
        begin = place * self._batch_size
        end = min(begin + self._batch_size, len(self._images))
        return slice(begin + self._rank, end, self._world_size), end

    def make(self, plan: BatchPlan) -> tuple[Tensor, Tensor]:
        """The images and labels of a plan, computed on the device alone where the images are in memory."""
        pictures = self._images.images.index_select(0, plan.rows)  # several times as fast as images[rows] on a CPU
        pictures = self._cropped(pictures.to(self._device), plan)
        pixels = normalise(pictures, self._mean, self._std, dtype=self._dtype, channels_last=self._channels_last)
        return pixels, self._images.labels[plan.rows].to(self._device)

    def _cropped(self, pictures: Tensor, plan: BatchPlan) -> Tensor:
        """Shape: (n, 3, H, W) -> (n, 3, S, S)."""
        size = self._images.size
        if not self._augment:
            return centre(pictures, size)
        if size is None:
            return crop_and_flip(pictures, plan.crops, plan.flips, padding=self._images.padding)
        return resized_crops(pictures, plan.crops, plan.flips, size=size)

    def _draw(self, number: int) -> _Epoch:
        """The numbers of an epoch, kept until another one is asked for."""
        if self._epoch is None or self._epoch.number != number:
            count, images = len(self._images), self._images
            generator = torch.Generator().manual_seed(_epoch_seed(self._seed, number))
            order = torch.randperm(count, generator=generator)
            if images.size is None:
                crops = torch.randint(2 * images.padding + 1, (count, 2), generator=generator).to(self._device)
            else:  # stays on the CPU, which calls torchvision for each image
                crops = draw_boxes(count, images.images.shape[-1], generator)
            flips = torch.randint(2, (count,), generator=generator).bool() & self._flip
            self._epoch = _Epoch(number, order.to(images.images.device), crops, flips.to(self._device))
        return self._epoch


def _epoch_seed(seed: int, epoch: int) -> int:
    """A seed that no other pair of seed and epoch is likely to have; 32 bits, as many as torch's generator takes in."""
    return int(np.random.SeedSequence(seed, spawn_key=(epoch,)).generate_state(1)[0])


def evaluation_batches(
    images: ImageSet,
    *,
    batch_size: int,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Every image once, in order, normalised and not augmented.

    :param images: on any device; moved batch by batch where that is another one than `device`.
    :param batch_size: images in a batch; the last may have fewer.
    :yields: images (n, 3, H, W) and their labels (n,).
    """
    mean, std = _mean_and_std(images, device)
    parts = torch.arange(len(images), device=images.images.device).split(batch_size)
    for number, rows in enumerate(parts):
        if isinstance(images.images, ReadsAhead) and number + 1 < len(parts):
            images.images.read_ahead(parts[number + 1])
        pictures = centre(images.images.index_select(0, rows).to(device), images.size)
        pixels = normalise(pictures, mean, std, dtype=dtype, channels_last=channels_last)
        yield pixels, images.labels[rows].to(device)


def _mean_and_std(images: ImageSet, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """On the device, once: a copy for each batch would wait for the device."""
    return torch.tensor(images.mean, device=device), torch.tensor(images.std, device=device)


def crop_and_flip(images: Tensor, offsets: Tensor, flips: Tensor, *, padding: int = PADDING) -> Tensor:
    """Pads each image with black pixels, cuts a window of the old size from it, and mirrors it left to right.

    The padding is black before normalisation, not zero after it: as where torchvision's
    `RandomCrop(32, padding=4)` goes before `ToTensor` and `Normalize`.

    :param images: Shape: (n, C, H, W).
    :param offsets: the window's top and left edge in the padded image, 0 to 2 * padding; integers. Shape: (n, 2).
    :param flips: whether the window is mirrored, bool. Shape: (n,).
    :param padding: pixels added at each edge.
    :returns: Shape and type as `images`.
    """
    count, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4).contiguous()
    assert padded.numel() < 2**31
    # where in `padded` each pixel comes from; on a CPU int32 and index_select are faster than int64 and `padded[...]`
    numbers = partial(torch.arange, dtype=torch.int32, device=images.device)
    top, left = offsets.int().unbind(1)
    rows = top[:, None] + numbers(height)  # (n, H)
    columns = left[:, None] + torch.where(flips[:, None], numbers(width).flip(0), numbers(width))  # (n, W)
    planes = numbers(count * channels).view(count, channels, 1)
    row_starts = (planes * padded.shape[2] + rows[:, None]) * padded.shape[3]  # (n, C, H)
    places = row_starts[..., None] + columns[:, None, None]  # (n, C, H, W)
    return padded.view(-1).index_select(0, places.view(-1)).view(images.shape)


def draw_boxes(count: int, side: int, generator: torch.Generator) -> Tensor:
    """Random parts of square images for `resized_crops`, with areas of LEAST_AREA to 1 and side ratios of 3/4 to 4/3.

    The distribution is that of torchvision's RandomResizedCrop: areas, logarithms of ratios, and positions are uniform.
    Sides longer than the image are cut to its size.

    :param side: pixels of the images.
    :returns: top, left, height and width; integers. Shape: (count, 4).
    """
    area, log_ratio, down, right = torch.rand((count, 4), generator=generator, dtype=torch.float64).unbind(1)
    area = side**2 * (LEAST_AREA + (1 - LEAST_AREA) * area)
    ratio = torch.exp((2 * log_ratio - 1) * math.log(4 / 3))
    height, width = (each.sqrt().round().clamp(1, side) for each in (area / ratio, area * ratio))
    top, left = ((side - each + 1).mul(place).floor() for each, place in ((height, down), (width, right)))
    return torch.stack([top, left, height, width], dim=1).long()


def resized_crops(images: Tensor, boxes: Tensor, flips: Tensor, *, size: int) -> Tensor:
    """A part of each image, resized with antialiasing by torchvision, and mirrored left to right if its flip is set.

    A GPU computes in float32 what a CPU computes in whole numbers, so their values may differ by 1.

    :param images: uint8. Shape: (n, C, H, W).
    :param boxes: top, left, height and width of each part. Shape: (n, 4).
    :param flips: whether the part is mirrored, bool. Shape: (n,).
    :returns: uint8. Shape: (n, C, size, size).
    """
    from torchvision.transforms.v2.functional import resized_crop

    parts = [resized_crop(image, *box, [size, size]) for image, box in zip(images, boxes.tolist(), strict=True)]
    resized = torch.stack(parts) if parts else images.new_empty((0, images.shape[1], size, size))
    return torch.where(flips[:, None, None, None], resized.flip(-1), resized)


def centre(images: Tensor, size: int | None) -> Tensor:
    """The middle `size` by `size` pixels of images (n, C, H, W); None: the images themselves."""
    if size is None:
        return images
    top, left = (-(-(each - size) // 2) for each in images.shape[-2:])
    return images[..., top : top + size, left : left + size]


def normalise(
    images: Tensor, mean: Tensor, std: Tensor, *, dtype: torch.dtype = torch.float32, channels_last: bool = False
) -> Tensor:
    """(images / 255 - mean) / std for each channel, in float32, operation by operation as torchvision computes it.

    :param images: uint8. Shape: (n, C, H, W).
    :param mean: float32. Shape: (C,).
    :param std: float32. Shape: (C,).
    :param dtype: of the output.
    :param channels_last: lay the output out with channels last in memory.
    :returns: Shape: (n, C, H, W).
    """
    assert images.dtype == torch.uint8
    layout = torch.channels_last if channels_last else torch.contiguous_format
    pixels = images.to(torch.float32).div_(255).sub_(mean[:, None, None]).div_(std[:, None, None])
    return pixels.to(dtype, memory_format=layout)  # last: laying out float32 is faster than uint8
