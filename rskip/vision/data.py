"""Loads datasets, and makes batches of labelled images on the device. Images in memory are uint8.

N images of the set, n of a batch, C channels, H, W; S pixels per side of a model's input.
"""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from rskip.extras import extra
from rskip.files.cache import cache_folder, expanded_path, file_or_packed, unpack, unpacking_folder
from rskip.files.checksum import file_difference
from rskip.files.lock import one_at_a_time
from rskip.machine.ranks import Ranks
from rskip.vision.datasets import DATASETS

with extra("vision"):
    import numpy as np

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

PADDING = 4  # pixels at each edge before a crop
MIN_AREA = 0.25  # minimum share of the image in a random resized crop, whose side ratio is 3/4 to 4/3


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, their classes, and the mean and standard deviation for normalisation.

    :param images: uint8. Shape: (N, 3, H, W), with 32 by 32 pixels in a dataset.
    :param labels: numbers of the classes, int64. Shape: (N,).
    :param classes: names of the classes, in the order of their numbers.
    :param mean: mean of each channel of the training images, with values from 0 to 1. Default: CIFAR-10's.
    :param std: standard deviation of each channel, likewise.
    :param padding: number of black pixels that training adds at each edge before it crops an image to its size.
    :param size: S. Training resizes a random part of each image to it, without padding. Evaluation uses the centre.
        None: a model's input has the size of the images.
    :param on_disk: whether `images` is a file in virtual memory, of which only batches are moved to a device.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, float, float] = DATASETS["cifar10"].mean
    std: tuple[float, float, float] = DATASETS["cifar10"].std
    padding: int = PADDING
    size: int | None = None
    on_disk: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> ImageSet:
        """The same image set on `device`, or itself if it is on the disk."""
        if self.on_disk:
            return self
        return dataclasses.replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def chosen(self, rows: Tensor) -> ImageSet:
        """The images in these rows, in memory. Shape of `rows`: (n,)."""
        return dataclasses.replace(self, images=self.images.index_select(0, rows), labels=self.labels[rows])


def load_dataset(
    name: str, root: str | os.PathLike[str] | None = None, *, train: bool, download: bool = False
) -> ImageSet:
    """The training or the test images of CIFAR-10 or CIFAR-100, read by torchvision.

    torchvision compares every file with its official MD5 checksum before it unpickles the file.

    :param name: a name of DATASETS.
    :param root: the folder of the batches (`cifar-10-batches-py`, `cifar-100-python`), its parent, or a folder with
        cifar10 or cifar100 in it that is one of these; None: cifar10 or cifar100 in $RSKIP_DATA (~/.cache/rskip/data).
        Packed batches (NAME.xz, NAME.gz) are unpacked into a folder there.
    :param train: whether to load the 50,000 training images instead of the 10,000 test images.
    :param download: download the dataset if it is missing or damaged. An archive with torchvision's name next to the
        folder is used instead of a download. A downloaded archive is removed after unpacking. Other processes that
        need the folder wait.
    :raises FileNotFoundError: the folder is missing.
    :raises ValueError: a file is missing or damaged, or torchvision is missing.
    :raises OSError: the download failed, or the disk is full.
    """
    kind, cache = _torchvision_class(name), cache_folder() / name
    root = (cache if root is None else expanded_path(os.fspath(root), "the folder of images")).absolute()
    folder = _unpacked(DATASETS[name].find(root) or root / kind.base_folder, name, cache)
    here = type(kind.__name__, (kind,), {"base_folder": folder.name})  # the folder may have any name
    with warnings.catch_warnings():
        # numpy 2.4.0 to 2.4.4 warn about such old pickles
        warnings.filterwarnings("ignore", message=r"dtype\(\): align")
        try:
            content: CIFAR10 = here(folder.parent, train=train)
        except RuntimeError:  # a file is missing or damaged
            mistake = _mistake(folder, name)
            if not download or folder.name != kind.base_folder:
                raise mistake or ValueError(f"{folder} can't be read: give another folder") from None
            _fetch(folder, name)
            content = here(folder.parent, train=train)
    return ImageSet(
        images=torch.from_numpy(content.data).permute(0, 3, 1, 2).contiguous(),  # torchvision has N, H, W, C
        labels=torch.tensor(content.targets),
        classes=tuple(content.classes),
        mean=DATASETS[name].mean,
        std=DATASETS[name].std,
    )


def checksums(name: str) -> dict[str, str]:
    """The official MD5 checksum of each file of a dataset, by name. Run records have these checksums."""
    kind = _torchvision_class(name)
    return {**dict([*kind.train_list, *kind.test_list]), kind.meta["filename"]: kind.meta["md5"]}


def _torchvision_class(name: str) -> type[CIFAR10]:
    with extra("vision", what=name):
        from torchvision import datasets
    found: type[CIFAR10] = getattr(datasets, name.upper())
    return found


def _unpacked(folder: Path, name: str, cache: Path) -> Path:
    """The folder, or if its files are packed, a folder of the cache with their content."""
    found = {file: file_or_packed(folder, file) for file in checksums(name)}
    if any(path == folder / file for file, path in found.items()) or not any(found.values()):
        return folder
    unpacked, url = unpacking_folder(cache, folder), _torchvision_class(name).url
    for file, md5 in checksums(name).items():
        if (packed := found[file]) is None:
            missing = f"{folder / file} is missing, and so is a compressed copy"
            raise FileNotFoundError(f"{missing}: get it from {url}")
        unpack(packed, unpacked / file, url=url, md5=md5)
    return unpacked


def _mistake(folder: Path, name: str) -> FileNotFoundError | ValueError | None:
    """The error for the first file of a dataset that is missing or damaged."""
    kind = _torchvision_class(name)
    if not folder.is_dir():
        return FileNotFoundError(
            f"no {kind.__name__} in {folder.parent}: expected the folder {folder}; give --download, or --data "
            f"FOLDER that holds {folder.name}, unpacked from {kind.url} (in Python download=True)"
        )
    for file, md5 in checksums(name).items():
        if wrong := file_difference(folder / file, md5=md5):
            again = f"get it again, from {kind.url} or with --download of `rskip vision` and `rskip analyse`"
            return ValueError(f"{folder / file} {wrong}: {again}")
    return None


def _fetch(folder: Path, name: str) -> None:
    """Downloads the archive of a dataset, and lets torchvision unpack it."""
    kind, parent = _torchvision_class(name), folder.parent
    with one_at_a_time(folder):
        if _mistake(folder, name) is None:
            return  # another process was faster
        from rskip.files.download import download as download_file  # loading a model doesn't need it

        archive = parent / kind.filename
        present = archive.exists()
        download_file(kind.url, archive, md5=kind.tgz_md5, otherwise=f"put the archive {archive.name} into {parent}")
        kind(parent, download=True)
        if not present:
            archive.unlink()


@dataclass(eq=False)
class TrainingBatches:
    """Training batches with every image once per epoch, in a new order, randomly cropped and flipped.

    `batch(iteration)` is a pure function of seed and iteration, so a resumed training needs no other state. The random
    numbers of an epoch are drawn on the CPU: first the order, then the crops, then the flips. The generator's seed is
    `numpy.random.SeedSequence(seed, spawn_key=(epoch,)).generate_state(1)[0]`. A batch is therefore the same on every
    device and for any number of ranks.

    :param images: the images. Those in memory are moved to `device` once, as uint8.
    :param batch_size: images per batch, over all ranks.
    :param seed: random seed, 0 or more.
    :param device: the device on which the batches are made.
    :param augment: whether to crop and flip. The order changes in each epoch in any case.
    :param flip: whether augmentation flips images.
    :param ranks: the processes that share each batch. This one gets every `ranks.count`-th image.
    :param channels_last: use the channels-last memory format.
    """

    images: ImageSet
    _: KW_ONLY
    batch_size: int
    seed: int
    device: torch.device | str
    augment: bool = True
    flip: bool = True
    ranks: Ranks = Ranks()
    channels_last: bool = False

    def __post_init__(self) -> None:
        self.images = self.images.to(self.device)
        self._mean_and_std = _mean_and_std(self.images, self.device)
        self._epoch, self._drawn = -1, (torch.empty(0),) * 3

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches per epoch. The last one may be smaller."""
        return -(-len(self.images) // self.batch_size)

    def batch(self, iteration: int) -> tuple[Tensor, Tensor, int]:
        """This rank's part of a batch. Changing the epoch draws its random numbers again.

        :param iteration: number of the iteration over all epochs, from 0.
        :returns: normalised images (n, 3, H, W), their labels (n,), and the number of images of all ranks.
        """
        epoch, place = divmod(iteration, self.batches_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._drawn = epoch, self._draw(epoch)
        begin = place * self.batch_size
        end = min(begin + self.batch_size, len(self.images))
        rows, crops, flips = (each[begin + self.ranks.rank : end : self.ranks.count] for each in self._drawn)
        # images in memory are computed only on the device; several times as fast as images[rows] on a CPU
        images, size = self.images.images.index_select(0, rows).to(self.device), self.images.size
        if not self.augment:
            images = centre(images, size)
        elif size is None:
            images = crop_and_flip(images, crops, flips, padding=self.images.padding)
        else:
            images = resized_crops(images, crops, flips, size=size)
        pixels = normalise(images, *self._mean_and_std, channels_last=self.channels_last)
        return pixels, self.images.labels[rows].to(self.device), end - begin

    def _draw(self, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """The random numbers of an epoch: a permutation of the images, and for every position its crop and flip."""
        count, images = len(self.images), self.images
        sequence = np.random.SeedSequence(self.seed, spawn_key=(epoch,))  # seeds and epochs rarely share a state
        generator = torch.Generator().manual_seed(int(sequence.generate_state(1)[0]))
        order = torch.randperm(count, generator=generator)
        if images.size is None:
            crops = torch.randint(2 * images.padding + 1, (count, 2), generator=generator).to(self.device)
        else:  # stays on the CPU, which calls torchvision for each image
            crops = draw_boxes(count, images.images.shape[-1], generator)
        flips = torch.randint(2, (count,), generator=generator).bool() & self.flip
        return order.to(images.images.device), crops, flips.to(self.device)


def evaluation_batches(
    images: ImageSet, *, batch_size: int, device: torch.device | str, channels_last: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields every image once, in order, normalised and without augmentation, with labels: (n, 3, H, W) and (n,).

    :param images: images on any device. They are moved to `device` batch by batch.
    """
    mean, std = _mean_and_std(images, device)
    for rows in torch.arange(len(images), device=images.images.device).split(batch_size):
        batch = centre(images.images.index_select(0, rows).to(device), images.size)
        yield normalise(batch, mean, std, channels_last=channels_last), images.labels[rows].to(device)


def _mean_and_std(images: ImageSet, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Mean and std on the device. They are copied once, since a copy per batch would wait for the device."""
    return torch.tensor(images.mean, device=device), torch.tensor(images.std, device=device)


def crop_and_flip(images: Tensor, offsets: Tensor, flips: Tensor, *, padding: int = PADDING) -> Tensor:
    """Pads each image with black pixels, crops a window of the original size, and mirrors it left to right.

    The padding is black before normalisation, as with torchvision's `RandomCrop(32, padding=4)` before `ToTensor` and
    `Normalize`.

    :param images: Shape: (n, C, H, W).
    :param offsets: the window's top and left edge in the padded image, integers from 0 to 2 * padding. Shape: (n, 2).
    :param flips: whether the window is mirrored, bool. Shape: (n,).
    """
    count, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4).contiguous()
    # the position of each pixel in `padded`; on a CPU int32 and index_select are faster than int64 and `padded[...]`
    numbers = partial(torch.arange, dtype=torch.int32, device=images.device)
    top, left = offsets.int().unbind(1)
    rows = top[:, None] + numbers(height)  # (n, H)
    columns = left[:, None] + torch.where(flips[:, None], numbers(width).flip(0), numbers(width))  # (n, W)
    planes = numbers(count * channels).view(count, channels, 1)
    row_starts = (planes * padded.shape[2] + rows[:, None]) * padded.shape[3]  # (n, C, H)
    places = row_starts[..., None] + columns[:, None, None]  # (n, C, H, W)
    return padded.view(-1).index_select(0, places.view(-1)).view(images.shape)


def draw_boxes(count: int, side: int, generator: torch.Generator) -> Tensor:
    """Random parts of square images for `resized_crops`, with areas of MIN_AREA to 1 and side ratios of 3/4 to 4/3.

    As in torchvision's RandomResizedCrop, areas, logarithms of ratios, and positions are uniform. Sides longer than the
    image are cut to its size; torchvision draws again.

    :param side: pixels of the images.
    :returns: top, left, height and width; integers. Shape: (count, 4).
    """
    area, log_ratio, down, right = torch.rand((count, 4), generator=generator, dtype=torch.float64).unbind(1)
    area = side**2 * (MIN_AREA + (1 - MIN_AREA) * area)
    ratio = torch.exp((2 * log_ratio - 1) * math.log(4 / 3))
    height, width = (each.sqrt().round().clamp(1, side) for each in (area / ratio, area * ratio))
    top, left = ((side - each + 1).mul(place).floor() for each, place in ((height, down), (width, right)))
    return torch.stack([top, left, height, width], dim=1).long()


def resized_crops(images: Tensor, boxes: Tensor, flips: Tensor, *, size: int) -> Tensor:
    """A part of each image, resized with antialiasing by torchvision, and mirrored left to right if its flip is set.

    A GPU computes in float32 and a CPU in integers, so their values may differ by 1.

    :param images: uint8. Shape: (n, C, H, W).
    :param boxes: top, left, height and width of each part. Shape: (n, 4).
    :returns: uint8. Shape: (n, C, size, size).
    """
    from torchvision.transforms.v2.functional import resized_crop

    parts = [resized_crop(image, *box, [size, size]) for image, box in zip(images, boxes.tolist(), strict=True)]
    resized = torch.stack(parts)
    return torch.where(flips[:, None, None, None], resized.flip(-1), resized)


def centre(images: Tensor, size: int | None) -> Tensor:
    """The middle `size` by `size` pixels of images (n, C, H, W); with None the images themselves."""
    if size is None:
        return images
    top, left = (-(-(each - size) // 2) for each in images.shape[-2:])
    return images[..., top : top + size, left : left + size]


def normalise(images: Tensor, mean: Tensor, std: Tensor, *, channels_last: bool = False) -> Tensor:
    """(images / 255 - mean) / std for each channel in float32, with the same operations as torchvision.

    :param images: uint8. Shape: (n, C, H, W).
    :param mean: float32; `std` likewise. Shape: (C,).
    """
    layout = torch.channels_last if channels_last else torch.contiguous_format
    pixels = images.to(torch.float32).div_(255).sub_(mean[:, None, None]).div_(std[:, None, None])
    return pixels.to(memory_format=layout)  # last, since the layout of float32 is changed faster
