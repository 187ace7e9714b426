"""Prepares your own images for training: splits, decodes and resizes them to squares, and computes mean and std.

S is the number of pixels per side of a model's input. If S is at most AS_THEY_ARE, images are resized to S. Otherwise
they are resized to 8/7 S; training crops random parts, and evaluation the centre. This is usual for ImageNet (256 and
224).
"""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
import torch
from torch import Tensor

from rskip.extras import extra
from rskip.files.cache import cache_folder
from rskip.files.decoding import FORMATS, OTHER_FORMAT, ImageError
from rskip.machine.environment import available_cores
from rskip.settings.kinds import Whole
from rskip.vision.data.labelled_files import ALL, LabelledFiles, Part, listed
from rskip.vision.data.loader import ImageSet
from rskip.vision.settings import MIN_TORCHVISION_SIZE
from rskip.vision.transforms import square

with extra("vision"):
    import numpy as np

    from rskip.machine.progress import Progress

SIZES = (32, 64, 128, 224)  # the choices of S
LARGEST_PREACT_SIZE = 64  # the largest S that is chosen for a PreAct-ResNet
AS_THEY_ARE = 64  # the largest S for which training pads and crops images; above, it crops and resizes random parts
VALIDATION_SHARE = 0.1  # share of each class's images that is split off for validation
MEMORY = 4 << 30  # maximum bytes of decoded images in memory; at most half of the machine's memory
_LEAST_STD = 1 / 255
_DARK = 15  # what is left of 12-bit values in 16-bit files
_DECIMALS = 4

Result = TypeVar("Result")
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
        return stored_size(self.size)


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


def memory_limit() -> int:
    """The maximum bytes of decoded images in memory: MEMORY, or half of the machine's memory if that is less."""
    return min(MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def stored_size(size: int) -> int:
    """Pixels per side of the squares that images are resized to, for a model's input of `size` pixels."""
    return size if size <= AS_THEY_ARE else round(size * 8 / 7)


def load_own_images(
    files: LabelledFiles,
    *,
    size: int | None,
    preact: bool,
    scored: bool = False,
    shown: bool = True,
) -> OwnImages:
    """The training images, and those that the curve is evaluated on.

    These are the validation images, else the test images, else images that are split off.

    :param size: pixels per side of the model's input; None: the largest of SIZES that half of the training images have
        on their shorter side, at most LARGEST_PREACT_SIZE for a PreAct-ResNet.
    :param preact: whether the model is a PreAct-ResNet.
    :param scored: the held-out images are those that a finished model is scored on: test, else validation.
    :param shown: whether progress is shown on a terminal.
    :raises ValueError: images that can't be read, or a class with too few different images to split some off.
    """
    looked = {part: _checksums_and_sizes(content, part, shown=shown) for part, content in files.parts.items()}
    parts = dict(files.parts)
    notes = list(files.notes)
    if ALL in parts or {*parts} == {"train"}:
        whole = ALL if ALL in parts else "train"
        parts, looked = _split_off(files, parts[whole], looked[whole])
        notes.append(
            f"{len(parts['valid']):,} of {len(files.parts[whole]):,} images are split off for validation, "
            f"{VALIDATION_SHARE:.0%} of each class"
        )
    split = next((each for each in (("test", "valid") if scored else ("valid", "test")) if parts.get(each)), "valid")
    if not parts.get(split):
        raise ValueError(f"{files.path}: {split} has no images: add some, or remove the folder")
    notes += _shared(looked)
    found = [each for _, each in looked["train"] if each is not None]
    chosen = _choose_size(found, preact=preact) if size is None else size
    side = stored_size(chosen)
    notes += _resizing([each for part in ("train", split) for _, each in looked[part] if each], chosen, side)
    train, other = (_decode(parts[part], part, side, shown=shown) for part in ("train", split))
    _refuse_unreadable([*train.wrong, *other.wrong], of=len(parts["train"]) + len(parts[split]))
    if train.brightest <= _DARK:
        brightest = f"the brightest value of the training images is {train.brightest} of 255"
        notes.append(f"{brightest}: scale them if they should not be this dark (16-bit files: white is 65,535)")
    mean, std = train.mean_and_std()
    description = ImageDescription(
        name=files.name,
        size=chosen,
        mean=mean,
        std=std,
        counts={part: len(content) for part, content in parts.items()},
        sha256={part: _checksum(content, looked[part]) for part, content in parts.items()},
    )
    images, held_out = (_image_set(each, files.classes, description) for each in (train, other))
    return OwnImages(images, held_out, split, description, notes)


def load_split(files: LabelledFiles, split: str | None, description: ImageDescription) -> tuple[str, ImageSet]:
    """The images of one split as a trained model takes them, and the split's name.

    If the images are not split but are those that the model was trained on (`description`), "valid" and "train" are the
    splits that training made. Other images without splits are "all".

    :param split: train, valid, test or all; None: the first of test, valid, all that exists.
    :raises ValueError: there is no such split.
    """
    parts = dict(files.parts)
    if ALL in parts or {*parts} == {"train"}:
        whole = ALL if ALL in parts else "train"
        looked = _checksums_and_sizes(parts[whole], whole, shown=True)
        try:
            own, sums = _split_off(files, parts[whole], looked)
        except ValueError:  # too few images to split
            own, sums = {}, {}
        if own and {part: _checksum(own[part], sums[part]) for part in own} == description.sha256:
            parts = {**own, ALL: parts[whole]}
    if split is None:
        split = next(part for part in ("test", "valid", ALL, "train") if part in parts)
    if split not in parts:
        raise ValueError(f"{files.path} has no {split} images: expected --split {' or '.join(parts)}")
    decoded = _decode(parts[split], split, description.stored_size, shown=True)
    _refuse_unreadable(decoded.wrong, of=len(parts[split]))
    return split, _image_set(decoded, files.classes, description)


def _image_set(decoded: _Decoded, classes: tuple[str, ...], description: ImageDescription) -> ImageSet:
    size = description.size
    return ImageSet(
        decoded.images,
        torch.tensor(decoded.part.labels, dtype=torch.int64),
        classes,
        description.mean,
        description.std,
        padding=size // 8,
        size=None if size == description.stored_size else size,
        on_disk=decoded.on_disk,
    )


def _readers() -> ThreadPoolExecutor:
    """Threads that read images. Pillow releases Python's lock while it decodes and resizes."""
    return ThreadPoolExecutor(min(16, available_cores()), thread_name_prefix="image reader")


def _each(readers: ThreadPoolExecutor, function: Callable[[int], Result], count: int) -> Iterator[Result]:
    """The function's results for 0 to count - 1, computed up to 256 ahead."""
    waiting: list[Future[Result]] = []
    for row in range(count):
        waiting.append(readers.submit(function, row))
        if len(waiting) > 256:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def _checksums_and_sizes(part: Part, name: str, *, shown: bool) -> list[tuple[str, tuple[int, int] | None]]:
    """Checksum and size of every image."""
    with _readers() as readers, Progress(f"checking {name}", total=len(part), unit="image", shown=shown) as progress:
        found = []
        for each in _each(readers, part.checksum_and_size, len(part)):
            found.append(each)
            progress.update()
        return found


@dataclass(frozen=True, eq=False)
class _Decoded:
    """The images of a part.

    images: in memory; `on_disk`: in a file in virtual memory.
    wrong: errors of the images that can't be read.
    sums, squares: sums of each channel's values and of their squares. Shape: (3,).
    brightest: the largest value.
    """

    part: Part
    images: Tensor
    on_disk: bool
    wrong: list[str]
    sums: np.ndarray
    squares: np.ndarray
    brightest: int

    def mean_and_std(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Mean and standard deviation of each channel over all pixels, with values from 0 to 1."""
        pixels = len(self.part) * self.images.shape[2] * self.images.shape[3]
        mean = self.sums / pixels / 255
        std = np.sqrt(np.maximum(self.squares / pixels / 255**2 - mean**2, 0))
        rounded: Any = [tuple(round(float(each), _DECIMALS) for each in values) for values in (mean, std)]
        return rounded[0], tuple(max(each, _LEAST_STD) for each in rounded[1])


def _decode(part: Part, name: str, side: int, *, shown: bool) -> _Decoded:
    """Reads every image once."""
    kept = _space((len(part), 3, side, side))
    sums, squares = np.zeros(3, np.int64), np.zeros(3, np.int64)
    wrong: list[str] = []
    brightest = 0
    with _readers() as readers, Progress(f"reading {name}", total=len(part), unit="image", shown=shown) as progress:
        for row, pixels in enumerate(_each(readers, lambda row: _try_pixels(part, row, side), len(part))):
            progress.update()
            if isinstance(pixels, str):
                wrong.append(pixels)
                continue
            values = pixels.reshape(-1, 3).astype(np.int64)
            sums += values.sum(axis=0)
            squares += (values * values).sum(axis=0)
            brightest = max(brightest, int(values.max()))
            kept[row] = pixels.transpose(2, 0, 1)
    return _Decoded(part, torch.from_numpy(kept), isinstance(kept, np.memmap), wrong, sums, squares, brightest)


def _space(shape: tuple[int, ...]) -> np.ndarray:
    """An array of uint8 in memory; if it is larger than `memory_limit()`, in a deleted file of the cache."""
    if (size := math.prod(shape)) <= memory_limit():
        return np.empty(shape, np.uint8)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=cache_folder()) as file:
        if sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, size)  # fails on a full disk, unlike a write into virtual memory
        return np.memmap(file, np.uint8, mode="w+", shape=shape)


def _refuse_unreadable(wrong: Sequence[str], *, of: int) -> None:
    """:raises ImageError: some of the images can't be read."""
    if len(wrong) > 1:
        reasons = listed([each.removesuffix(OTHER_FORMAT) for each in wrong], separator="; ")
        other = any(each.endswith(OTHER_FORMAT) for each in wrong)
        formats = f"; readable formats: {', '.join(FORMATS)}" if other else ""
        raise ImageError(f"{len(wrong):,} of {of:,} images can't be read: {reasons}; repair or remove them{formats}")
    if wrong:
        raise ImageError(f"{wrong[0]}; repair or remove it")


def _pixels(part: Part, row: int, side: int) -> np.ndarray:
    """Shape: (side, side, 3)."""
    return np.asarray(square(part.image(row), side))


def _try_pixels(part: Part, row: int, side: int) -> np.ndarray | str:
    """The pixels, or the error if the image can't be read."""
    try:
        return _pixels(part, row, side)
    except (ValueError, OSError) as error:
        return str(error)


def _checksum(part: Part, looked: Sequence[tuple[str, Any]]) -> str:
    """Checksum of the names, classes and contents of the images, independent of their order."""
    each = sorted(
        f"{label}\0{os.fspath(name)}\0{checksum}\n"
        for name, label, (checksum, _) in zip(part.names, part.labels, looked, strict=True)
    )
    return hashlib.sha256("".join(each).encode("utf-8", "surrogateescape")).hexdigest()


def _split_off(
    files: LabelledFiles, part: Part, looked: Sequence[tuple[str, Any]]
) -> tuple[dict[str, Part], dict[str, list[Any]]]:
    """Training and validation images, with their checksums and sizes.

    VALIDATION_SHARE of each class's images, at least one, are split off: those with the lowest checksums. The split
    therefore depends only on the images, and equal images stay together.

    :raises ValueError: a class has only one image, or all its images are equal.
    """
    rows: dict[int, dict[str, list[int]]] = {}
    for row, (label, (checksum, _)) in enumerate(zip(part.labels, looked, strict=True)):
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
        for checksum in sorted(same)[: len(same) - 1]:
            if len(taken) >= wanted:
                break
            taken += same[checksum]
        held_out |= {*taken}
    order = {
        "train": [row for row in range(len(part)) if row not in held_out],
        "valid": [row for row in range(len(part)) if row in held_out],
    }
    parts = {name: part.chosen(each) for name, each in order.items()}
    return parts, {name: [looked[row] for row in each] for name, each in order.items()}


def _shared(looked: Mapping[str, Sequence[tuple[str, Any]]]) -> list[str]:
    """Notes on evaluation images that are also training images."""
    trained = {checksum for checksum, _ in looked["train"]}
    counts = {
        part: sum(checksum in trained for checksum, _ in each) for part, each in looked.items() if part != "train"
    }
    return [
        f"{count:,} of {len(looked[part]):,} {part} images are also training images: the {part} error is too low"
        for part, count in counts.items()
        if count
    ]


def _choose_size(found: Sequence[tuple[int, int]], *, preact: bool) -> int:
    """The largest of SIZES that the shorter side of half of the images reaches, within the model's limits."""
    shorter = statistics.median_high(min(size) for size in found) if found else SIZES[0]
    size = max((each for each in SIZES if each <= shorter), default=SIZES[0])
    return min(size, LARGEST_PREACT_SIZE) if preact else max(size, MIN_TORCHVISION_SIZE)


def _resizing(found: Sequence[tuple[int, int]], size: int, side: int) -> list[str]:
    """A note on how images of other sizes are resized and cropped."""
    sizes = sorted({*found}, key=lambda each: each[0] * each[1])
    if not sizes or sizes == [(side, side)]:
        return []
    shown = [f"{width} x {height}" for width, height in (sizes[0], sizes[-1])]
    which = shown[0] if len(sizes) == 1 else f"{len(sizes):,} sizes from {shown[0]} to {shown[1]}"
    cut = "" if side == size else f", then cropped to {size} x {size}, at random or at the centre"
    return [f"images of {which} pixels: their central squares are resized to {side} x {side}{cut}"]
