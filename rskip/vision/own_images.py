"""Prepares your own images for training and scoring: split, decoded and resized to squares.

S is the number of pixels per side of a model's input. If S is at most AS_THEY_ARE, images are resized to S. Otherwise
they are resized to 8/7 S; training crops random parts, and evaluation the centre. This is usual for ImageNet (256 and
224).
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import torch

from rskip.extras import extra
from rskip.files.cache import cache_folder
from rskip.files.decoding import ImageError
from rskip.machine.memory import available_memory
from rskip.settings.kinds import Whole
from rskip.vision.data import ImageSet
from rskip.vision.labelled_files import ALL, LabelledFiles, Part, find_labelled_files, in_threads
from rskip.vision.settings import MIN_TORCHVISION_SIZE, TrainingSettings

with extra("vision"):
    import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

SIZES = (32, 64, 128, 224)  # the choices of S
LARGEST_OTHER_SIZE = 64  # the largest S that is chosen for a model that is not torchvision's
AS_THEY_ARE = 64  # the largest S for which training pads and crops images; above, it crops and resizes random parts
VALIDATION_SHARE = 0.1  # share of each class's images that is split off for validation
MEMORY = 4 << 30  # maximum bytes of decoded images in memory; at most half of the machine's memory
_LEAST_STD = 1 / 255
_DECIMALS = 4

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class ImageDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The description of your own images in a model's files.

    :param name: name of the folder or the file.
    :param size: pixels per side of the model's input.
    :param mean: mean of each channel over the training images, with pixel values from 0 to 1.
    :param std: standard deviation of each channel, likewise.
    :param counts: number of images per split.
    :param sha256: checksum per split, of the names, classes and contents of its images.
    """

    name: str
    size: Annotated[int, msgspec.Meta(ge=8, le=1024)]
    mean: tuple[float, float, float]
    std: tuple[_Positive, _Positive, _Positive]
    counts: dict[str, Whole]
    sha256: dict[str, str]

    @property
    def stored_size(self) -> int:
        """Pixels per side that images are resized to before they are cropped."""
        return _stored_size(self.size)


@dataclass(frozen=True, eq=False)
class OwnImages:
    """The parts of your own images that a training needs.

    :param held_out: the images that the curve is evaluated on. `split` is their name, "valid" or "test".
    :param notes: lines for the terminal.
    """

    train: ImageSet
    held_out: ImageSet
    split: str
    description: ImageDescription
    notes: Sequence[str]


def load_own_images(settings: TrainingSettings, *, scored: bool = False) -> OwnImages:
    """The training images, and those that the curve is evaluated on.

    These are the validation images, else the test images, else images that are split off.

    :param settings: the images' path is `data`. Without a `size` it is the largest of SIZES that half of the training
        images have on their shorter side, at most LARGEST_OTHER_SIZE unless the model is torchvision's.
    :param scored: the held-out images are those that a finished model is scored on: test, else validation.
    :raises ValueError: images that can't be read, or a class with too few different images to split some off.
    """
    files = find_labelled_files(Path(str(settings.data)))
    parts = {name: part.looked_at(name) for name, part in files.parts.items()}
    notes = list(files.notes)
    if files.unsplit is not None:
        whole = parts[files.unsplit]
        parts = _split_off(files, whole)
        notes.append(
            f"{len(parts['valid']):,} of {len(whole):,} images are split off for validation, "
            f"{VALIDATION_SHARE:.0%} of each class"
        )
    split = next((each for each in (("test", "valid") if scored else ("valid", "test")) if parts.get(each)), "valid")
    if not parts.get(split):
        raise ValueError(f"{files.path}: {split} has no images: add some, or remove the folder")
    notes += _shared(parts)
    if (size := settings.size) is None:
        sizes = [each for each in parts["train"].sizes if each]
        size = _choose_size(sizes, of_torchvision=settings.of_torchvision)
    side = _stored_size(size)
    notes += _resizing([each for part in ("train", split) for each in parts[part].sizes if each], size, side)
    pixels = _decoded({part: parts[part] for part in ("train", split)}, side)
    mean, std = _statistics(pixels["train"])
    description = ImageDescription(
        name=files.name,
        size=size,
        mean=mean,
        std=std,
        counts={name: len(part) for name, part in parts.items()},
        sha256={name: part.checksum() for name, part in parts.items()},
    )
    train, held_out = (
        _image_set(pixels[part], parts[part].labels, files.classes, description) for part in ("train", split)
    )
    return OwnImages(train, held_out, split, description, notes)


def load_split(files: LabelledFiles, split: str | None, description: ImageDescription) -> tuple[str, ImageSet]:
    """The images of one split as a trained model takes them, and the split's name.

    If the images are not split but are those that the model was trained on (`description`), "valid" and "train" are the
    splits that training made. Other images without splits are "all".

    :param split: train, valid, test or all; None: the first of test, valid, all that exists.
    :raises ValueError: there is no such split.
    """
    parts = dict(files.parts)
    if files.unsplit is not None:
        whole = parts[files.unsplit].looked_at(files.unsplit)
        try:
            own = _split_off(files, whole)
        except ValueError:  # too few images to split
            own = {}
        if own and {name: part.checksum() for name, part in own.items()} == description.sha256:
            parts = {**own, ALL: whole}
    if split is None:
        split = next(part for part in ("test", "valid", ALL, "train") if part in parts)
    if split not in parts:
        raise ValueError(f"{files.path} has no {split} images: expected --split {' or '.join(parts)}")
    pixels = _decoded({split: parts[split]}, description.stored_size)[split]
    return split, _image_set(pixels, parts[split].labels, files.classes, description)


def _stored_size(size: int) -> int:
    """Pixels per side of the squares that images are resized to, for a model's input of `size` pixels."""
    return size if size <= AS_THEY_ARE else round(size * 8 / 7)


def square(image: Image, side: int) -> Image:
    """The image's middle square, resized to `side` by `side` pixels, bilinear with antialiasing."""
    from PIL import Image as Images
    from PIL import ImageOps

    return image if image.size == (side, side) else ImageOps.fit(image, (side, side), Images.Resampling.BILINEAR)


def _decoded(parts: Mapping[str, Part], side: int) -> dict[str, np.ndarray]:
    """The pixels of every image, in uint8. Shape: (N, 3, side, side).

    :raises ImageError: some of the images can't be read.
    """
    in_memory = sum(map(len, parts.values())) * 3 * side**2 <= min(MEMORY, available_memory() // 2)
    kept = {name: _space((len(part), 3, side, side), in_memory=in_memory) for name, part in parts.items()}
    wrong: list[str] = []
    for name, part in parts.items():

        def decode(row: int, part: Part = part, pixels: np.ndarray = kept[name]) -> str | None:
            try:
                pixels[row] = np.asarray(square(part.image(row), side)).transpose(2, 0, 1)
            except (ValueError, OSError) as error:
                return str(error)
            return None

        wrong += filter(None, in_threads(decode, len(part), f"reading {name}"))
    if wrong:
        more = f" ({len(wrong):,} of {sum(map(len, parts.values())):,} images can't be read)" if wrong[1:] else ""
        raise ImageError(f"{wrong[0]}; repair or remove it{more}")
    return kept


def _space(shape: tuple[int, ...], *, in_memory: bool) -> np.ndarray:
    """An array of uint8, in memory or in a deleted file of the cache."""
    if in_memory:
        return np.empty(shape, np.uint8)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=cache_folder()) as file:
        if sys.platform == "linux":
            # fails on a full disk, unlike a write into virtual memory
            os.posix_fallocate(file.fileno(), 0, math.prod(shape))
        return np.memmap(file, np.uint8, mode="w+", shape=shape)


def _statistics(pixels: np.ndarray) -> tuple[Any, Any]:
    """Mean and standard deviation of each channel over all pixels, with values from 0 to 1."""
    counts = np.zeros((3, 256), np.int64)  # how often each channel has each value
    for begin in range(0, len(pixels), 64):
        for channel, values in enumerate(pixels[begin : begin + 64].swapaxes(0, 1)):
            counts[channel] += np.bincount(values.ravel(), minlength=256)
    number, value = counts[0].sum(), np.arange(256)
    mean = counts @ value / number / 255
    std = np.sqrt(np.maximum(counts @ value**2 / number / 255**2 - mean**2, 0))
    rounded = [tuple(round(float(each), _DECIMALS) for each in values) for values in (mean, std)]
    return rounded[0], tuple(max(each, _LEAST_STD) for each in rounded[1])


def _image_set(
    pixels: np.ndarray, labels: Sequence[int], classes: tuple[str, ...], description: ImageDescription
) -> ImageSet:
    size = description.size
    return ImageSet(
        torch.from_numpy(pixels),
        torch.tensor(labels, dtype=torch.int64),
        classes,
        description.mean,
        description.std,
        padding=size // 8,
        size=None if size == description.stored_size else size,
        on_disk=isinstance(pixels, np.memmap),
    )


def _split_off(files: LabelledFiles, part: Part) -> dict[str, Part]:
    """Training and validation images.

    VALIDATION_SHARE of each class's images, at least one, are split off: those with the lowest checksums. The split
    therefore depends only on the images, and equal images of a class stay together.

    :raises ValueError: a class has only one image, or all its images are equal.
    """
    rows: dict[int, dict[str, list[int]]] = {}
    for row, (label, checksum) in enumerate(zip(part.labels, part.sums, strict=True)):
        rows.setdefault(label, {}).setdefault(checksum, []).append(row)
    held_out: set[int] = set()
    for label, same in rows.items():
        if len(same) < 2:
            raise ValueError(
                f"{files.path}: class {files.classes[label]} has {len(same)} different image: expected two or more, "
                "one for training and one for validation"
            )
        wanted = max(1, round(VALIDATION_SHARE * sum(map(len, same.values()))))
        taken: list[int] = []
        for checksum in sorted(same)[:-1]:
            if len(taken) < wanted:
                taken += same[checksum]
        held_out |= {*taken}
    return {
        name: part.chosen([row for row in range(len(part)) if (row in held_out) == (name == "valid")])
        for name in ("train", "valid")
    }


def _shared(parts: Mapping[str, Part]) -> list[str]:
    """Notes on evaluation images that are also training images."""
    trained = {*parts["train"].sums}
    counts = {name: sum(each in trained for each in part.sums) for name, part in parts.items() if name != "train"}
    return [
        f"{count:,} of {len(parts[name]):,} {name} images are also training images: the {name} error is too low"
        for name, count in counts.items()
        if count
    ]


def _choose_size(found: Sequence[tuple[int, int]], *, of_torchvision: bool) -> int:
    """The largest of SIZES that the shorter side of half of the images reaches, within the model's limits."""
    shorter = statistics.median_high(min(size) for size in found) if found else SIZES[0]
    size = max((each for each in SIZES if each <= shorter), default=SIZES[0])
    return max(size, MIN_TORCHVISION_SIZE) if of_torchvision else min(size, LARGEST_OTHER_SIZE)


def _resizing(found: Sequence[tuple[int, int]], size: int, side: int) -> list[str]:
    """A note on how images of other sizes are resized and cropped."""
    sizes = sorted({*found}, key=math.prod)
    if not sizes or sizes == [(side, side)]:
        return []
    ends = [f"{width} x {height}" for width, height in (sizes[0], sizes[-1])]
    which = ends[0] if len(sizes) == 1 else f"{len(sizes):,} sizes from {ends[0]} to {ends[1]}"
    cut = "" if side == size else f", then cropped to {size} x {size}, at random or at the centre"
    return [f"images of {which} pixels: their central squares are resized to {side} x {side}{cut}"]
