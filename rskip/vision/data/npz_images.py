"""Reads images and labels from an .npz file, under the usual names and those of medmnist and keras. Runs no pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rskip.files.names import line_name
from rskip.machine.extras import extra
from rskip.settings.errors import shown
from rskip.vision.data.labelled_files import ALL, SPLITS, LabelledFiles, Part, check_class_name, check_classes, listed

with extra("vision"):
    import numpy as np

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


def read_npz(path: Path, *, classes: Sequence[str] | None = None) -> LabelledFiles:
    """The images of an .npz file.

    :param classes: the classes of a model, in its order; None: the file's.
    :raises ValueError: the file is damaged, or has arrays with unexpected names, types or shapes.
    """
    name = line_name(path)
    try:
        with np.load(path, allow_pickle=False) as content:
            keys = list(content.files)
            wanted = {key for pairs in PAIRS.values() for pair in pairs for key in pair} | {*CLASS_NAMES}
            arrays = {key: content[key] for key in keys if key in wanted}
    except MemoryError:
        raise ValueError(f"{name}: not enough memory for its arrays: use fewer or smaller images") from None
    except Exception as error:  # zipfile, zlib and NumPy raise errors of any type for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{name}: no arrays can be read ({reason}): expected {EXPECTED}") from None
    found = {part: pair for part in PAIRS for pair in PAIRS[part] if pair[0] in arrays or pair[1] in arrays}
    if "train" not in found and ALL not in found and classes is None:
        given = listed([shown(key) for key in keys]) or "nothing"
        raise ValueError(f"{name} holds {given}: expected {EXPECTED}")
    if ALL in found and len(found) > 1:
        raise ValueError(
            f"{name} holds {found[ALL][0]} and {listed([found[each][0] for each in found if each != ALL])}: expected "
            "images of splits, or all images together"
        )
    parts = {part: _part(name, arrays, *found[part]) for part in (*SPLITS, ALL) if part in found}
    names = _class_names(name, arrays, parts, classes)
    for part, content in parts.items():
        if wrong := sorted({label for label in content.labels if not 0 <= label < len(names)}):
            raise ValueError(
                f"{name}: {found[part][1]} has the label {wrong[0]}: expected 0 to {len(names) - 1}, "
                f"the numbers of {len(names)} classes"
            )
    if classes is None:
        first = parts.get("train") or parts[ALL]
        counts = np.bincount(np.array(first.labels, dtype=np.int64), minlength=len(names)).tolist()
        check_classes(path, names, counts)
    elif not {*names} <= {*classes}:
        raise ValueError(f"{name}: its classes are {listed(names)}: expected the model's, {listed(classes)}")
    else:
        numbers = [list(classes).index(each) for each in names]
        parts = {
            part: Part(content.images, content.names, [numbers[label] for label in content.labels])
            for part, content in parts.items()
        }
        names = tuple(classes)
    return LabelledFiles(path, names, parts)


def _part(name: str, arrays: Mapping[str, np.ndarray], images_key: str, labels_key: str) -> Part:
    for key, other in ((images_key, labels_key), (labels_key, images_key)):
        if key not in arrays:
            raise ValueError(f"{name} holds {other} without {key}: expected both")
    images, labels = arrays[images_key], arrays[labels_key]
    if images.dtype != np.uint8:
        scaled = "; multiply values in [0, 1] by 255 and convert them" if images.dtype.kind == "f" else ""
        raise ValueError(f"{name}: {images_key} is {images.dtype}: expected uint8{scaled}")
    channels = images.shape[3] if images.ndim == 4 else 1
    if images.ndim not in (3, 4) or channels not in (1, 3, 4) or not min(images.shape[1:], default=0):
        first = images.ndim == 4 and images.shape[1] in (1, 3)
        advice = "; move the channels to the end" if first else ""
        raise ValueError(
            f"{name}: {images_key} has the shape {images.shape}: expected (N, height, width) or "
            f"(N, height, width, 1, 3 or 4){advice}"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind not in "iub":
        raise ValueError(f"{name}: {labels_key} is {labels.dtype}: expected whole numbers, one class per image")
    if labels.shape != images.shape[:1]:
        several = "; several classes per image are not supported" if labels.ndim == 2 else ""
        raise ValueError(
            f"{name}: {labels_key} has the shape {labels.shape}: expected ({len(images)},), one per image{several}"
        )
    if images.ndim == 4 and channels == 1:
        images = images[..., 0]
    names = [f"{images_key}[{row}]" for row in range(len(images))]
    return Part(images, names, labels.astype(np.int64).tolist())


def _class_names(
    name: str, arrays: Mapping[str, np.ndarray], parts: Mapping[str, Part], known: Sequence[str] | None
) -> tuple[str, ...]:
    """The class names of the file, else of the model, else numbers up to the highest training label."""
    given: Any = next((arrays[key] for key in CLASS_NAMES if key in arrays), None)
    if given is not None:
        if given.ndim != 1 or given.dtype.kind not in "US":
            raise ValueError(
                f"{name}: the classes are {given.dtype} of shape {given.shape}: expected a 1-D array of names"
            )
        names = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in given.tolist()]
        for each in names:
            check_class_name(each, f"{name}: {each!r}")
        if len({*names}) < len(names):
            raise ValueError(f"{name}: two classes have the same name: expected different names")
        return tuple(names)
    if known is not None:
        return tuple(known)
    first = next(iter(parts.values()))
    labels = {*first.labels}
    highest = max(labels, default=-1)
    if highest >= len(labels) and min(labels) >= 0:  # some number is missing
        missing = next(number for number in range(highest) if number not in labels)
        raise ValueError(
            f"{name}: the labels go up to {highest}, but {missing} is missing: number the classes from 0, without gaps"
        )
    return tuple(map(str, range(highest + 1)))
