"""Finds and prepares your own images: class folders or an .npz file, split, decoded and resized to squares.

FOLDER/train/CLASS/cat1.jpg     with FOLDER/valid and FOLDER/test, or one of them; see SPLIT_NAMES
FOLDER/CLASS/cat1.jpg           validation images are split off
FILE.npz                        arrays of images and labels, under the usual names and those of medmnist and keras

S is the number of pixels per side of a model's input. If S is at most AS_THEY_ARE, images are resized to S. Otherwise
they are resized to 8/7 S; training crops random parts, and evaluation the centre. This is usual for ImageNet (256 and
224).
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import torch

from rskip.extras import extra
from rskip.files.cache import cache_folder
from rskip.files.checksum import sha256_file
from rskip.files.decoding import ImageError
from rskip.files.images import SUFFIXES, image_size, read_image
from rskip.files.names import line_name
from rskip.machine.environment import available_cores
from rskip.machine.ranks import Ranks
from rskip.settings.errors import shown
from rskip.settings.kinds import Whole
from rskip.vision.data import ImageSet
from rskip.vision.datasets import DATASETS
from rskip.vision.settings import MIN_TORCHVISION_SIZE, TrainingSettings, images_name

with extra("vision"):
    import numpy as np

    from rskip.machine.progress import Progress

if TYPE_CHECKING:
    from PIL.Image import Image

SPLITS = ("train", "valid", "test")
ALL = "all"  # the name of the only part if the images are not split
# names of folders, in upper or lower case
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "val", "validation", "dev", "eval"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}
LAYOUT = "FOLDER/CLASS/IMAGE.jpg, or FOLDER/train/CLASS/IMAGE.jpg with FOLDER/valid and FOLDER/test"
PAIRS = {
    "train": (("train_images", "train_labels"), ("x_train", "y_train")),
    "valid": (
        ("val_images", "val_labels"), ("valid_images", "valid_labels"), ("x_val", "y_val"), ("x_valid", "y_valid"),
    ),
    "test": (("test_images", "test_labels"), ("x_test", "y_test")),
    ALL: (("images", "labels"), ("x", "y")),
}  # fmt: skip
CLASS_NAMES = ("classes", "class_names")
EXPECTED = (
    "images and labels, train_images and train_labels (with val_ and test_), or x_train and y_train (with x_test, "
    "y_test); optionally classes, the names of the classes"
)
SIZES = (32, 64, 128, 224)  # the choices of S
LARGEST_OTHER_SIZE = 64  # the largest S that is chosen for a model that is not torchvision's
AS_THEY_ARE = 64  # the largest S for which training pads and crops images; above, it crops and resizes random parts
VALIDATION_SHARE = 0.1  # share of each class's images that is split off for validation
MEMORY = 4 << 30  # maximum bytes of decoded images in memory; at most half of the machine's memory
_LEAST_STD = 1 / 255
_DECIMALS = 4
_LISTED = 3  # number of names that an error lists
_AHEAD = 256  # images that the threads read together

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
        return _stored_size(self.size)


@dataclass(frozen=True, eq=False)
class Part:
    """Images of one split, not decoded.

    :param images: paths, or arrays of uint8: (H, W) or (H, W, channels).
    :param names: names for checksums, which don't depend on the folder's path.
    :param sums: the SHA-256 of each image's file or array, after `looked_at`. `sizes`: its width and height; None:
        they can't be read.
    """

    images: Sequence[Path | np.ndarray]
    names: Sequence[str]
    labels: Sequence[int]
    sums: Sequence[str] = ()
    sizes: Sequence[tuple[int, int] | None] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, rows: Sequence[int]) -> Part:
        """The images of these rows, which were looked at."""
        images, names, labels = _at(self.images, rows), _at(self.names, rows), _at(self.labels, rows)
        return Part(images, names, labels, _at(self.sums, rows), _at(self.sizes, rows))

    def image(self, row: int) -> Image:
        """The image, upright and in RGB; see `read_image`."""
        from PIL import Image

        image = self.images[row]
        source = image if isinstance(image, Path) else Image.fromarray(np.ascontiguousarray(image))
        return read_image(source, least_side=1)

    def looked_at(self, name: str) -> Part:
        """The same images with their checksums and sizes."""
        found = [*_in_threads(self._look, len(self), f"checking {name}")]
        return replace(self, sums=[checksum for checksum, _ in found], sizes=[size for _, size in found])

    def _look(self, row: int) -> tuple[str, tuple[int, int] | None]:
        image = self.images[row]
        if not isinstance(image, Path):
            checksum = hashlib.sha256(f"{image.shape}".encode() + image.tobytes()).hexdigest()
            return checksum, (image.shape[1], image.shape[0])
        checksum = ""
        try:
            checksum = sha256_file(image)
            return checksum, image_size(image)
        except (ImageError, OSError):  # decoding reports what is wrong
            return checksum, None

    def checksum(self) -> str:
        """Checksum of the names, classes and contents of the images, independent of their order."""
        each = zip(self.labels, self.names, self.sums, strict=True)
        lines = sorted(f"{label}\0{name}\0{checksum}\n" for label, name, checksum in each)
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, eq=False)
class LabelledFiles:
    """Your own images.

    :param path: the folder or the .npz file.
    :param classes: names of the classes, in the order of their numbers.
    :param parts: the images by split, a name of SPLITS; or all images under the name ALL.
    :param notes: lines that report what was left out.
    """

    path: Path
    classes: tuple[str, ...]
    parts: Mapping[str, Part]
    notes: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The folder's or the file's name, without .npz."""
        return images_name(self.path)

    @property
    def training_count(self) -> int:
        """Number of training images, before validation images are split off."""
        return len(self.parts.get("train") or self.parts[ALL])

    @property
    def unsplit(self) -> str | None:
        """The name of the part that validation images are split off from, if any."""
        return ALL if ALL in self.parts else "train" if {*self.parts} == {"train"} else None


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


def _at(values: Sequence[Result], rows: Sequence[int]) -> list[Result]:
    return [values[row] for row in rows]


def _in_threads(function: Callable[[int], Result], count: int, name: str) -> Iterator[Result]:
    """The function's results for 0 to count - 1. Pillow releases Python's lock while it decodes and resizes."""
    with (
        ThreadPoolExecutor(min(16, available_cores()), thread_name_prefix="image reader") as readers,
        Progress(name, total=count, unit="image", shown=Ranks.from_environment().first) as progress,
    ):
        for begin in range(0, count, _AHEAD):
            for result in readers.map(function, range(begin, min(begin + _AHEAD, count))):
                progress.update()
                yield result


def _decoded(parts: Mapping[str, Part], side: int) -> dict[str, np.ndarray]:
    """The pixels of every image, in uint8. Shape: (N, 3, side, side).

    :raises ImageError: some of the images can't be read.
    """
    kept = {name: _space((len(part), 3, side, side)) for name, part in parts.items()}
    wrong: list[str] = []
    for name, part in parts.items():

        def decode(row: int, part: Part = part, pixels: np.ndarray = kept[name]) -> str | None:
            try:
                pixels[row] = np.asarray(square(part.image(row), side)).transpose(2, 0, 1)
            except (ValueError, OSError) as error:
                return str(error)
            return None

        wrong += filter(None, _in_threads(decode, len(part), f"reading {name}"))
    if wrong:
        more = f" ({len(wrong):,} of {sum(map(len, parts.values())):,} images can't be read)" if wrong[1:] else ""
        raise ImageError(f"{wrong[0]}; repair or remove it{more}")
    return kept


def _space(shape: tuple[int, ...]) -> np.ndarray:
    """An array of uint8, in memory or in a deleted file of the cache."""
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    if (size := math.prod(shape)) <= min(MEMORY, half):
        return np.empty(shape, np.uint8)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=cache_folder()) as file:
        if sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, size)  # fails on a full disk, unlike a write into virtual memory
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
    therefore depends only on the images, and equal images stay together.

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


def find_labelled_files(path: Path, *, classes: Sequence[str] | None = None) -> LabelledFiles:
    """The images of a folder or an .npz file.

    :param classes: the classes of a model, in its order; None: those of the training images.
    :raises FileNotFoundError: no such folder or file.
    :raises ValueError: there are no class folders, fewer than two classes or unknown ones, a class has no images, a
        name is not UTF-8, or arrays have unexpected names, types or shapes.
    """
    if not path.exists():
        raise FileNotFoundError(f"{line_name(path)}: no such folder or file: expected {LAYOUT}, or an .npz file")
    if path.is_dir():
        return _class_folders(path, classes)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"{line_name(path)}: expected a folder ({LAYOUT}) or an .npz file")
    return _read_npz(path, classes)


def kind_of_images(path: Path) -> Literal["own", "dataset"] | None:
    """The kind of a path: a dataset, your own images (a file, or a folder with folders or images in it), or None."""
    if not path.is_dir():
        return "own" if path.is_file() else None
    for each in DATASETS.values():
        found = each.find(path)
        # a folder with folders holds classes, even if a file in it has the name of a dataset's file
        if found and (found != path or path.name == each.folder or not _folders(path)):
            return "dataset"
    return "own" if _folders(path) or _has_images(path) else None


def _check_class_name(name: str, source: str) -> None:
    """:raises ValueError: the name is not UTF-8, or has control characters."""
    if line_name(name) != name:
        raise ValueError(f"{source}: the class's name is not UTF-8 or has control characters: rename it")


def _check_classes(path: Path, classes: Sequence[str], labels: Sequence[int]) -> None:
    """:raises ValueError: there are fewer than two classes, or a class has no training images."""
    if len(classes) < 2:
        only = f"the only class is {line_name(classes[0])}" if classes else "there are no classes"
        raise ValueError(f"{line_name(path)}: {only}: expected two or more")
    present = {*labels}
    if empty := [line_name(name) for number, name in enumerate(classes) if number not in present]:
        which = f"class {empty[0]} has" if len(empty) == 1 else f"the classes {_listed(empty)} have"
        raise ValueError(
            f"{line_name(path)}: {which} no training images: expected files of {', '.join(SUFFIXES)}; "
            "add some, or remove the class"
        )


def _listed(names: Sequence[str]) -> str:
    """The first names, and the number of further names."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _class_folders(path: Path, classes: Sequence[str] | None) -> LabelledFiles:
    inside, place = _folders(path), line_name(path)
    parts: dict[str, Path] = {}
    for folder, part in _split_folders(inside).items():
        if part in parts:
            raise ValueError(f"{place} has {parts[part].name} and {folder.name}: remove one of them")
        parts[part] = folder
    if parts and "train" not in parts and classes is None:
        has = " and ".join(folder.name for folder in parts.values())
        raise ValueError(f"{place} has {has} and no train: expected class folders in {place}/train")
    notes = []
    if not parts:
        if classes is None:
            _refuse_nested(path, inside)
        parts = {ALL: path}
    elif others := [line_name(folder.name) for folder in inside if folder not in parts.values()]:
        notes.append(f"{_listed(others)} in {place}: skipped, because there is {' and '.join(parts)}")
    source = parts.get("train", path)
    names = _class_names(source) if classes is None else tuple(classes)
    of = "train" if classes is None else "the model"
    found = {part: _part(parts[part], names, of=of) for part in (*SPLITS, ALL) if part in parts}
    if classes is None:
        _check_classes(source, names, next(iter(found.values())).labels)
    return LabelledFiles(path, names, found, notes)


def _split_folders(folders: Sequence[Path]) -> dict[Path, str]:
    """The split of each folder that holds class folders and has a split's name, since a class may have any name.

    If no folder has exactly such a name, a name with one word of SPLIT_NAMES counts, such as seg_train and seg_test.
    """
    holders = [folder for folder in folders if _folders(folder)]
    if exact := {each: SPLIT_NAMES[each.name.lower()] for each in holders if each.name.lower() in SPLIT_NAMES}:
        return exact
    words = {each: SPLIT_NAMES.keys() & re.findall("[a-z]+", each.name.lower()) for each in holders}
    found = {each: SPLIT_NAMES[word] for each in holders for word in words[each] if not _has_images(each)}
    return found if "train" in found.values() and len({*found.values()}) > 1 else {}


def _refuse_nested(path: Path, folders: Sequence[Path]) -> None:
    """:raises ValueError: all folders have the same subfolders and no images, so they are probably not classes."""
    inside = [{each.name for each in _folders(folder)} for folder in folders if not _has_images(folder)]
    same = sorted(set.intersection(*inside)) if 1 < len(inside) == len(folders) else []
    if len(same) > 1:
        outer, inner = (_listed([*map(line_name, names)]) for names in (sorted(each.name for each in folders), same))
        raise ValueError(
            f"{line_name(path)}: {outer} have the same folders, {inner}, and no images: expected class folders; name "
            "splits train, valid and test, or move the images of a class into its folder"
        )


def _class_names(folder: Path) -> tuple[str, ...]:
    """The names of the class folders, sorted as torchvision's ImageFolder sorts them."""
    if not (names := tuple(sorted(each.name for each in _folders(folder)))):
        loose = sum(each.suffix.lower() in SUFFIXES for each in folder.iterdir())
        what = f"{loose:,} images and no class folders" if loose else "no class folders"
        raise ValueError(f"{line_name(folder)} holds {what}: expected {LAYOUT}")
    for name in names:
        _check_class_name(name, line_name(folder / name))
    return names


def _part(folder: Path, classes: Sequence[str], *, of: str) -> Part:
    """The images in the class folders and their subfolders, as torchvision's ImageFolder finds them.

    But for hidden files, such as the `._cat.jpg` that archives of macOS contain.
    """
    with extra("vision", what="a folder of images"):
        from torchvision.datasets.folder import make_dataset
    if unknown := sorted({each.name for each in _folders(folder)} - {*classes}):
        problem = f"{line_name(folder / unknown[0])}: {of} has no class {line_name(unknown[0])}"
        raise ValueError(f"{problem}: expected {_listed([line_name(name) for name in classes])}")
    numbers = {name: number for number, name in enumerate(classes)}
    found = make_dataset(folder, numbers, extensions=SUFFIXES, allow_empty=True)
    found = [(Path(path), label) for path, label in found if not os.path.basename(path).startswith(".")]
    names = [path.relative_to(folder).as_posix() for path, _ in found]
    return Part([path for path, _ in found], names, [label for _, label in found])


def _folders(folder: Path) -> list[Path]:
    hidden = (".", "__MACOSX")
    return [each for each in folder.iterdir() if each.is_dir() and not each.name.startswith(hidden)]


def _has_images(folder: Path) -> bool:
    return any(each.suffix.lower() in SUFFIXES for each in folder.iterdir())


def _read_npz(path: Path, classes: Sequence[str] | None) -> LabelledFiles:
    """The images of an .npz file; see `find_labelled_files`."""
    name = line_name(path)
    wanted = {key for pairs in PAIRS.values() for pair in pairs for key in pair} | {*CLASS_NAMES}
    try:
        with np.load(path, allow_pickle=False) as content:
            keys = list(content.files)
            arrays = {key: content[key] for key in keys if key in wanted}
    except Exception as error:  # zipfile, zlib and NumPy raise errors of any type for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{name}: no arrays can be read ({reason}): expected {EXPECTED}") from None
    found = {part: pair for part in PAIRS for pair in PAIRS[part] if pair[0] in arrays or pair[1] in arrays}
    if "train" not in found and ALL not in found and classes is None:
        given = _listed([shown(key) for key in keys]) or "nothing"
        raise ValueError(f"{name} holds {given}: expected {EXPECTED}")
    if ALL in found and len(found) > 1:
        raise ValueError(
            f"{name} holds {found[ALL][0]} and {_listed([found[each][0] for each in found if each != ALL])}: expected "
            "images of splits, or all images together"
        )
    parts = {part: _arrays_of(name, arrays, *found[part]) for part in (*SPLITS, ALL) if part in found}
    names = _npz_class_names(name, arrays, parts, classes)
    for part, content in parts.items():
        if wrong := sorted({label for label in content.labels if not 0 <= label < len(names)}):
            raise ValueError(
                f"{name}: {found[part][1]} has the label {wrong[0]}: expected 0 to {len(names) - 1}, "
                f"the numbers of {len(names)} classes"
            )
    if classes is None:
        _check_classes(path, names, next(iter(parts.values())).labels)
        return LabelledFiles(path, names, parts)
    if not {*names} <= {*classes}:
        raise ValueError(f"{name}: its classes are {_listed(names)}: expected the model's, {_listed(classes)}")
    numbers = [list(classes).index(each) for each in names]
    parts = {part: replace(content, labels=_at(numbers, content.labels)) for part, content in parts.items()}
    return LabelledFiles(path, tuple(classes), parts)


def _arrays_of(name: str, arrays: Mapping[str, np.ndarray], images_key: str, labels_key: str) -> Part:
    for key, other in ((images_key, labels_key), (labels_key, images_key)):
        if key not in arrays:
            raise ValueError(f"{name} holds {other} without {key}: expected both")
    images, labels = arrays[images_key], arrays[labels_key]
    channels = images.shape[3] if images.ndim == 4 else 1
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    pixels = images.dtype == np.uint8 and images.ndim in (3, 4) and channels in (1, 3, 4) and 0 not in images.shape[1:]
    if not pixels or labels.dtype.kind not in "iub" or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{name}: {images_key} is {images.dtype} of shape {images.shape}, {labels_key} is {labels.dtype} of shape "
            f"{labels.shape}: expected uint8 of shape (N, height, width) or (N, height, width, 1, 3 or 4), and whole "
            "numbers of shape (N,)"
        )
    if images.ndim == 4 and channels == 1:
        images = images[..., 0]
    names = [f"{images_key}[{row}]" for row in range(len(images))]
    return Part(list(images), names, labels.astype(np.int64).tolist())


def _npz_class_names(
    name: str, arrays: Mapping[str, np.ndarray], parts: Mapping[str, Part], known: Sequence[str] | None
) -> tuple[str, ...]:
    """The class names of the file, else of the model, else a number for each training label."""
    given: Any = next((arrays[key] for key in CLASS_NAMES if key in arrays), None)
    if given is None and known is not None:
        return tuple(known)
    if given is None:
        return tuple(map(str, range(len({*next(iter(parts.values())).labels}))))
    if given.ndim != 1 or given.dtype.kind not in "US" or len(np.unique(given)) < len(given):
        problem = f"{name}: the classes are {given.dtype} of shape {given.shape}"
        raise ValueError(f"{problem}: expected a 1-D array of different names")
    names = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in given.tolist()]
    for each in names:
        _check_class_name(each, f"{name}: {each!r}")
    return tuple(names)
