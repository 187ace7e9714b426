"""Finds your own images: class folders, or an .npz file.

FOLDER/train/CLASS/cat1.jpg     with FOLDER/valid and FOLDER/test, or one of them; see SPLIT_NAMES
FOLDER/CLASS/cat1.jpg           not split
FILE.npz                        arrays of images and labels, under the usual names and those of medmnist and keras
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rskip.extras import extra
from rskip.files.checksum import sha256_file
from rskip.files.decoding import ImageError
from rskip.files.images import SUFFIXES, image_size, read_image
from rskip.files.names import line_name
from rskip.machine.cores import available_cores
from rskip.machine.ranks import Ranks
from rskip.settings.errors import shown
from rskip.vision.datasets import DATASETS
from rskip.vision.settings import images_name

with extra("vision"):
    import numpy as np

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
_LISTED = 3  # number of names that an error lists
_AHEAD = 256  # images that the threads read together

Result = TypeVar("Result")


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
        found = [*in_threads(self._look, len(self), f"checking {name}")]
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


def _at(values: Sequence[Result], rows: Sequence[int]) -> list[Result]:
    return [values[row] for row in rows]


def in_threads(function: Callable[[int], Result], count: int, name: str) -> Iterator[Result]:
    """The function's results for 0 to count - 1. Pillow releases Python's lock while it decodes and resizes."""
    from rskip.machine.progress import Progress  # loading a model doesn't need it

    with (
        ThreadPoolExecutor(min(16, available_cores()), thread_name_prefix="image reader") as readers,
        Progress(name, total=count, unit="image", shown=Ranks.from_environment().first) as progress,
    ):
        for begin in range(0, count, _AHEAD):
            for result in readers.map(function, range(begin, min(begin + _AHEAD, count))):
                progress.update()
                yield result
