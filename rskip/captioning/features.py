"""Features of images in a store on the disk. N features per image, C values per feature.

A store is a folder: `features.bin` holds the features of all images in sequence, and `features.json` a description of
the features and one entry per image. While a store is made, the array grows, and `features.json` is replaced every
minute, so a killed process loses at most a minute's work.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from rskip.extras import extra
from rskip.files.lock import one_at_a_time
from rskip.files.rows import FileRows
from rskip.files.whole import atomic_file
from rskip.settings.check import convert
from rskip.settings.differences import differences
from rskip.settings.errors import errors_about
from rskip.settings.kinds import Count, Size

with extra("captioning"):
    import numpy as np

FORMAT = 1
IMAGE_IDS = "image ids"
INDEX, ARRAY = "features.json", "features.bin"
SAVE_SECONDS = 60.0


class _Preprocessing(TypedDict, total=False):
    size: Size | None


class _Needed(TypedDict):
    backbone: str
    dim: Size
    dtype: Literal["float16", "float32"]


class Description(_Needed, total=False):
    """How the features were made, with the keys that rskip reads. A file may have others."""

    preprocessing: _Preprocessing
    regions: Count
    names: str


@dataclass(frozen=True)
class Features:
    """The features of one image.

    values: float16 or float32. Shape: (N, C)
    grid: rows and columns of a grid, whose cells are in row-major order; None: regions.
    """

    values: np.ndarray
    grid: tuple[int, int] | None


class StoredImage(msgspec.Struct, frozen=True, array_like=True):
    """An image with features in a store.

    sha256: checksum of its file; "" if only its features were given. count: the number of its features.
    """

    sha256: str
    count: Count
    grid: tuple[Count, Count] | None


@dataclass
class Index:
    """The content of INDEX. A store that is not complete lacks images of the command that makes it."""

    description: dict[str, Any]
    images: dict[str, StoredImage] = field(default_factory=dict)
    complete: bool = False

    @property
    def rows(self) -> int:
        return sum(image.count for image in self.images.values())

    @property
    def dtype(self) -> str:
        return "<f2" if self.description["dtype"] == "float16" else "<f4"

    @property
    def bytes(self) -> int:
        """The size of the array."""
        return self.rows * self.description["dim"] * np.dtype(self.dtype).itemsize


class FeatureStore:
    """The features of a collection of images, read from the disk on access. It is pickled as its path.

        store = FeatureStore(Path("features/flickr8k"))
        store["1000268201_693b08cb0e.jpg"].values  # (49, 1280)

    :raises FileNotFoundError: the store doesn't exist.
    :raises ValueError: the store is unfinished or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        index = read_index(self.path)
        if index is None:
            raise FileNotFoundError(f"no features in {path}: make them with rskip caption extract")
        if not index.complete:
            raise ValueError(f"{path} is unfinished: repeat the command that started it")
        self.description, self.images = index.description, index.images
        self.names = list(self.images)
        self.dim: int = self.description["dim"]
        self._ends = dict(zip(self.names, accumulate(image.count for image in self.images.values()), strict=True))
        self._array = FileRows(self.path / ARRAY, index.dtype, (index.rows, self.dim))

    def __len__(self) -> int:
        return len(self.images)

    def __contains__(self, name: object) -> bool:
        return self._key(name) is not None

    def __getitem__(self, name: str) -> Features:
        """Reads the features of an image.

        :param name: a name from `names`. If these are numbers (bottom-up features), also a file name that ends in a
            number: COCO_val2014_000000391895.jpg is 391895.
        :raises ValueError: the store doesn't have the image, or was changed since it was opened.
        """
        key = self._key(name)
        if key is None:
            raise ValueError(f"{self.path}: no features of {name}: extract them from the folder with this image")
        image, end = self.images[key], self._ends[key]
        return Features(self._array[end - image.count : end], image.grid)

    def __reduce__(self) -> tuple[type[FeatureStore], tuple[Path]]:
        return FeatureStore, (self.path,)

    def _key(self, name: object) -> str | None:
        if isinstance(name, str):
            if name in self.images:
                return name
            number = Path(name).stem.rpartition("_")[2]
            if self.description.get("names") == IMAGE_IDS and number.isdecimal() and str(int(number)) in self.images:
                return str(int(number))
        return None


class ConstantFeatures:
    """A store in which every image has one feature, the number 1: the baseline of a model that sees no image."""

    name = "constant"
    dim = 1
    description: Mapping[str, Any] = {"backbone": name, "dim": 1, "dtype": "float32"}

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> Features:
        return Features(np.ones((1, 1), dtype=np.float32), None)


def open_features(path: str | os.PathLike[str]) -> FeatureStore | ConstantFeatures:
    """Opens the store at `path`, or constant features if `path` is "constant"."""
    return ConstantFeatures() if str(path) == ConstantFeatures.name else FeatureStore(path)


class FeatureWriter:
    """Makes a store, resumes an unfinished one, or adds images to a complete one.

    Only one process at a time may write a store. `finish` completes it. Until then, `FeatureStore` can't open a new
    store. It is a context manager.

    :param path: the folder of the store.
    :param description: describes the features: `backbone`, `dim`, `dtype` ("float16" or "float32"), ...
    :raises ValueError: another process writes the store, it has another description, or the folder holds other files.
    """

    def __init__(self, path: str | os.PathLike[str], description: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.description = {"format": FORMAT, **description}
        convert(self.description, Description)
        self.path.mkdir(parents=True, exist_ok=True)
        if {path.name for path in self.path.glob("[!.]*")} - {INDEX, ARRAY}:
            raise ValueError(f"{self.path} holds files other than features: choose another folder")

    def __enter__(self) -> FeatureWriter:
        with ExitStack() as closing:
            closing.enter_context(one_at_a_time(self.path / INDEX, wait=False))
            self._index = read_index(self.path) or Index(self.description)
            if changes := differences(self._index.description, self.description):
                raise ValueError(
                    f"{self.path} was made with other settings ({changes[0]}): use the same settings, or choose "
                    "another folder"
                )
            self._file = closing.enter_context((self.path / ARRAY).open("ab"))
            if self._file.tell() > self._index.bytes:  # a killed process left more; others may be reading a whole file
                self._file.truncate(self._index.bytes)
            self._saved = time.monotonic()
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with self._closing:
            if error[0] is not None and self.images:
                self._save()

    @property
    def images(self) -> Mapping[str, StoredImage]:
        """The images of the store, by their names."""
        return self._index.images

    def add(self, name: str, sha256: str, features: Features) -> str:
        """Adds an image, unless the store can't hold its features.

        :param sha256: checksum of its file.
        :returns: why the image was left out; "" if it was added.
        :raises ValueError: the name exists already.
        """
        if name in self.images:
            raise ValueError(f"{self.path}: two images have the name {name}: give each image its own name")
        values, dim, dtype = features.values, self.description["dim"], self.description["dtype"]
        if values.shape[1] != dim:
            return f"{name} has features of {values.shape[1]} numbers, expected {dim}: use one backbone for all images"
        with np.errstate(over="ignore"):
            made = values.astype(self._index.dtype)
        if not np.isfinite(made).all():
            wider = "; float32 may hold them" if np.isfinite(values).all() else ""
            return f"{name} has features that are not finite numbers of {dtype}{wider}"
        self._file.write(made.tobytes())
        self._index.images[name] = StoredImage(sha256, len(values), features.grid)
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self._save()
        return ""

    def finish(self) -> None:
        """Completes the store."""
        self._index.complete = True
        self._save()

    def _save(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        with atomic_file(self.path / INDEX) as temporary:
            temporary.write_bytes(msgspec.json.encode(self._index))
        self._saved = time.monotonic()


def read_index(path: Path) -> Index | None:
    """The index of a store; None if there is none."""
    if not (path / INDEX).exists():
        return None
    advice = f"move {path} away and extract the features again"
    try:
        index = msgspec.json.decode((path / INDEX).read_bytes(), type=Index)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{path / INDEX} is damaged ({error}): {advice}") from None
    with errors_about(path / INDEX):
        convert(index.description, Description)
    for name, image in index.images.items():
        if math.prod(image.grid or (image.count,)) != image.count:
            raise ValueError(f"{path / INDEX} is damaged at {name}: {advice}")
    found = (path / ARRAY).stat().st_size if (path / ARRAY).is_file() else 0
    if found < index.bytes:
        raise ValueError(f"{path / ARRAY} is damaged: it has {found:,} bytes, expected {index.bytes:,}: {advice}")
    return index
