"""Features of images in a store on the disk. N features per image, C values per feature.

A store is a folder: `features.bin` holds the features of all images in sequence, `boxes.bin` the boxes of regions, and
`pictures.jsonl` a description of the features and one line per image. The index of an unfinished store is
`pictures.jsonl.partial`. A killed process loses at most the images of one batch.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from rskip.extras import extra
from rskip.files.lock import one_at_a_time
from rskip.files.rows import FileRows
from rskip.files.state import read_state_lines, state_line
from rskip.files.whole import atomic_file
from rskip.settings.check import convert
from rskip.settings.differences import differences
from rskip.settings.kinds import Count, Size, Whole

with extra("captioning"):
    import numpy as np

FORMAT = 1
IMAGE_IDS = "image ids"
INDEX, _FEATURES, _BOXES = "pictures.jsonl", "features.bin", "boxes.bin"
_PARTIAL = f"{INDEX}.partial"


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
    boxes: bool
    names: str


@dataclass(frozen=True)
class Features:
    """The features of one image.

    values: float16 or float32. Shape: (N, C)
    grid: rows and columns of a grid, whose cells are in row-major order; None: regions.
    boxes: boxes of regions in pixels: left, top, right, bottom. Shape: (N, 4)
    """

    values: np.ndarray
    grid: tuple[int, int] | None
    boxes: np.ndarray | None = None

    def __post_init__(self) -> None:
        assert self.values.ndim == 2 and len(self.values)
        assert self.grid is None or self.grid[0] * self.grid[1] == len(self.values)
        assert self.boxes is None or self.boxes.shape == (len(self.values), 4)


class StoredImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image with features in a store.

    sha256: checksum of its file; "" if only its features were given. start, count: the range of its features.
    """

    name: str
    sha256: str
    start: Whole
    count: Count
    grid: tuple[Count, Count] | None


class FeatureStore:
    """The features of a collection of images, read from the disk on access. It is pickled as its path.

        store = FeatureStore(Path("features/flickr8k"))
        store["1000268201_693b08cb0e.jpg"].values  # (49, 1280)

    :raises FileNotFoundError: the store doesn't exist.
    :raises ValueError: the store is unfinished or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.description, self.images = _read_index(self.path)
        self.names = list(self.images)
        self.dim: int = self.description["dim"]
        self._boxes: FileRows | None = None
        self._features = self._rows(_FEATURES, self.description["dtype"], self.dim)
        if any(image.grid is None for image in self.images.values()) and (self.path / _BOXES).exists():
            self._boxes = self._rows(_BOXES, "float32", 4)

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
        image = self.images[key]
        part = slice(image.start, image.start + image.count)
        boxes = None if self._boxes is None or image.grid is not None else self._boxes[part]
        return Features(self._features[part], image.grid, boxes)

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

    def _rows(self, name: str, dtype: str, columns: int) -> FileRows:
        path, rows = self.path / name, sum(image.count for image in self.images.values())
        expected = rows * columns * np.dtype(dtype).itemsize
        found = path.stat().st_size if path.is_file() else 0
        if found < expected:
            raise ValueError(f"{path} is damaged: it has {found:,} bytes, expected {expected:,}: extract it again")
        return FileRows(path, dtype, (rows, columns))


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
    store and doesn't see added images.

    :param path: the folder of the store.
    :param description: describes the features: `backbone`, `dim`, `dtype` ("float16" or "float32"), ...
    :raises ValueError: another process writes the store, it has another description, or the folder holds other files.
    """

    def __init__(self, path: str | os.PathLike[str], description: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.description = {"format": FORMAT, **description}
        self.sums: dict[str, str] = {}
        self._rows = 0
        convert(self.description, Description)
        self.path.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in self.path.glob("[!.]*")}
        if names and not names & {INDEX, _PARTIAL}:
            raise ValueError(f"{self.path} holds files other than features: choose another folder")
        self._partial = self.path / _PARTIAL
        with ExitStack() as closing:
            closing.enter_context(one_at_a_time(self._partial, wait=False))
            self._restore()
            self._lock = closing.pop_all()

    def add(self, images: Iterable[tuple[str, str, Features]]) -> dict[str, str]:
        """Adds images, which are on the disk afterwards. Leaves out features that the store can't hold.

        :param images: name, SHA-256 of the file, and features of each image.
        :returns: the reason for each image that was left out, by its name.
        :raises ValueError: a name exists already.
        """
        entries, sums, rows = [], dict(self.sums), self._rows
        content: dict[str, list[bytes]] = {_FEATURES: [], _BOXES: []}
        failed: dict[str, str] = {}
        for name, sha256, features in images:
            if name in sums:
                raise ValueError(f"{self.path}: two images have the name {name}: give each image its own name")
            with np.errstate(over="ignore"):
                values = features.values.astype(np.dtype(self.description["dtype"]).newbyteorder("<"), copy=False)
            if problem := self._problem(features, values):
                failed[name] = f"{name} has {problem}"
                continue
            content[_FEATURES].append(values.tobytes())
            if features.boxes is not None:
                content[_BOXES].append(features.boxes.astype("<f4").tobytes())
            entries.append(StoredImage(name=name, sha256=sha256, start=rows, count=len(values), grid=features.grid))
            rows += len(values)
            sums[name] = sha256
        for file, parts in content.items():
            if parts:
                with (self.path / file).open("ab") as output:
                    output.writelines(parts)
                    output.flush()
                    os.fsync(output.fileno())
        with self._partial.open("a", encoding="utf-8") as index:
            index.writelines(map(state_line, entries))
        self._rows, self.sums = rows, sums
        return failed

    def finish(self) -> None:
        """Completes the store."""
        with self._partial.open("rb") as file:
            os.fsync(file.fileno())
        self._partial.replace(self.path / INDEX)

    def __enter__(self) -> FeatureWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _problem(self, features: Features, converted: np.ndarray) -> str:
        """Why the store can't hold the features; "" if it can."""
        dim, found = self.description["dim"], converted.shape[1]
        if found != dim:
            return f"features of {found} numbers, expected {dim}: use one backbone for all images"
        if (features.boxes is not None) != self.description.get("boxes", False):
            which = "no boxes" if features.boxes is None else "boxes"
            return f"{which}, unlike the images before it: use one kind of features"
        if not np.isfinite(converted).all():
            wider = "; float32 may hold them" if np.isfinite(features.values).all() else ""
            return f"features that are not finite numbers of {self.description['dtype']}{wider}"
        return ""

    def _restore(self) -> None:
        """Truncates the files after the last image that is complete on the disk."""
        if not self._partial.exists() and (self.path / INDEX).exists():
            with atomic_file(self._partial) as copy:
                shutil.copyfile(self.path / INDEX, copy)
        lines = _read_lines(self._partial, finished=False) if self._partial.exists() else iter(())
        before, end = next(lines, (None, 0))
        if before is None:
            self._partial.write_text(state_line(self.description), encoding="utf-8")
            end = self._partial.stat().st_size
        elif before != self.description:
            raise ValueError(
                f"{self.path} was made with other settings ({differences(before, self.description)[0]}): use the same "
                "settings, or choose another folder"
            )
        sizes = {self.path / name: row for name, row in self._row_bytes().items()}
        there = min(path.stat().st_size // row if path.exists() else 0 for path, row in sizes.items())
        for image, position in lines:
            if image.start + image.count > there:  # its features were lost in a power cut
                break
            self._rows, self.sums[image.name], end = image.start + image.count, image.sha256, position
        os.truncate(self._partial, end)
        for path, row in sizes.items():
            if path.exists():
                os.truncate(path, self._rows * row)

    def _row_bytes(self) -> dict[str, int]:
        sizes = {_FEATURES: self.description["dim"] * np.dtype(self.description["dtype"]).itemsize}
        return {**sizes, _BOXES: 16} if self.description.get("boxes") else sizes


def _read_lines(index: Path, *, finished: bool) -> Iterator[tuple[Any, int]]:
    """The description, then the images, each with the offset of the end of its line.

    :param finished: whether the store is complete; otherwise a damaged end is left out.
    """
    advice = f"move {index.parent} away and extract the features again"
    return read_state_lines(index, StoredImage, head=Description, advice=advice, finished=finished)


def _read_index(path: Path) -> tuple[dict[str, Any], dict[str, StoredImage]]:
    index = path / INDEX
    if not index.exists() and (path / _PARTIAL).exists():
        raise ValueError(f"{path} is unfinished: repeat the command that started it")
    found = [each for each, _ in _read_lines(index, finished=True)] if index.exists() else []
    if not found:
        raise FileNotFoundError(f"no features in {path}: make them with rskip caption extract")
    description, *images = found
    rows = 0
    for image in images:
        if image.start != rows or math.prod(image.grid or (image.count,)) != image.count:
            raise ValueError(f"{index} is damaged at {image.name}: move {path} away and extract the features again")
        rows += image.count
    return description, {image.name: image for image in images}
