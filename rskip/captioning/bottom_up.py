"""Makes a store of published bottom-up features (Anderson et al., 2018). N regions (36, or 10 to 100); C is 2,048.

Supported formats: a TSV file with the fields FIELDS, the last two in base64 of float32; or a folder of NUMBER.npz files
with `feat`, or with `x` and `bbox`.
"""

from __future__ import annotations

import base64
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from rskip.captioning.extraction import Extraction
from rskip.captioning.features import IMAGE_IDS, Features, FeatureWriter
from rskip.extras import extra
from rskip.files.names import line_name

with extra("captioning"):
    import numpy as np

FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_VALUES, _BOXES = ("feat", "features", "x"), ("bbox", "boxes")
_BATCH = 64
_MOST_BYTES = 1 << 24  # per array: 2,048 regions of 2,048 float32 values

Row = tuple[str, str, "Features | str"]  # the line or file, the image id, and the features or an error


def store_bottom_up(
    source: Path, output: Path, *, dtype: Literal["float16", "float32"] = "float16"
) -> Extraction:
    """Makes a store of published features, or continues an unfinished one.

    Features that are damaged, not finite in `dtype`, or of another kind than most are skipped and listed in `failed`.
    If an image id appears twice, the first one counts. The store's names are image ids. An image belongs to the id at
    the end of its file name.

    :param source: a .tsv file, or a folder of .npz files.
    :raises FileNotFoundError: `source` doesn't exist.
    :raises ValueError: `source` holds no such features.
    """
    rows = _read_tsv(source) if source.is_file() else _read_npz(source)
    result, started = Extraction(total=0), time.perf_counter()
    before: list[Row] = []
    kinds: Counter[tuple[int, bool]] = Counter()
    for row in rows:  # the store gets the most frequent kind of the first batch
        before.append(row)
        if isinstance(found := row[2], Features):
            kinds[found.values.shape[1], found.boxes is not None] += 1
        if kinds.total() == _BATCH:
            break
    if not kinds:
        reason = before[0][2] if before else "it is empty"
        raise ValueError(f"{source}: not bottom-up features: {reason}")
    dim, boxes = kinds.most_common(1)[0][0]
    description = {"backbone": "bottom-up", "names": IMAGE_IDS, "dim": dim, "dtype": dtype}
    if boxes:
        description["boxes"] = True
    with FeatureWriter(output, description) as writer:
        every = chain(before, rows)
        while batch := list(islice(every, _BATCH)):
            new: dict[str, tuple[str, Features]] = {}
            for place, name, found in batch:
                result.total += 1
                if name in writer.images or name in new:
                    result.kept += 1
                elif isinstance(found, str):
                    result.failed[place] = f"{place}: {found}"
                else:
                    new[name] = place, found
            failed = writer.add((name, "", found) for name, (_, found) in new.items())
            result.failed |= {new[name][0]: f"{new[name][0]}: {problem}" for name, problem in failed.items()}
            result.done += len(new) - len(failed)
            result.seconds = time.perf_counter() - started
        writer.finish()
    return result


def _read_tsv(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place, name = f"{line_name(path)}, line {number:,}", ""
            try:
                cells = line.rstrip(b"\r\n").split(b"\t")
                if len(cells) != len(FIELDS):
                    raise ValueError(f"{len(cells)} fields, expected {len(FIELDS)}: {', '.join(FIELDS)}")
                name, count = str(int(cells[0])), int(cells[3])
                boxes, values = (_numbers(cell, count) for cell in cells[4:])
                yield place, name, _regions(values, boxes)
            except ValueError as error:
                yield place, name, str(error)


def _numbers(text: bytes, count: int) -> np.ndarray:
    """Shape: (count, numbers a row)"""
    content = base64.b64decode(text, validate=True)
    if count < 1 or not content or len(content) % (4 * count):
        raise ValueError(f"{len(content):,} bytes for {count} boxes: the file is truncated or damaged")
    return np.frombuffer(content, dtype="<f4").reshape(count, -1)


def _read_npz(folder: Path) -> Iterator[Row]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such file or folder: expected a .tsv file or a folder of .npz files")
    for path in sorted(folder.glob("*.npz")):
        place, name, number = line_name(path), "", path.stem.rpartition("_")[2]
        try:
            if not number.isdecimal():
                raise ValueError("its name doesn't end in the number of an image")
            name = str(int(number))
            values = _read_array(path, _VALUES)
            if values is None:
                raise ValueError(f"none of the arrays {', '.join(_VALUES)}")
            yield place, name, _regions(values, _read_array(path, _BOXES))
        except ValueError as error:
            yield place, name, str(error)


def _read_array(path: Path, names: Sequence[str]) -> np.ndarray | None:
    """The array of the first name that the .npz file contains, or None if it contains none of them."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            name = next((name for name in names if name in archive.files), None)
            if name is None:
                return None
            if (size := archive.zip.getinfo(f"{name}.npy").file_size) > _MOST_BYTES + (1 << 14):  # with its header
                raise ValueError(f"{size:,} bytes, expected at most {_MOST_BYTES:,}")
            found = archive[name]
            if found.dtype.kind not in "fiu":
                raise ValueError(f"an array of {found.dtype}, expected real numbers")
            return found
    except Exception as error:  # NumPy, zipfile and zlib raise errors of any type for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"no array of numbers can be read ({reason})") from None


def _regions(values: np.ndarray, boxes: np.ndarray | None) -> Features:
    """The features of N regions, from values (..., C), which may form a grid, and boxes (N, 4)."""
    count = math.prod(values.shape[:-1])
    if not values.ndim or not values.size or (boxes is not None and boxes.shape != (count, 4)):
        raise ValueError(f"features of shape {values.shape}, boxes of {getattr(boxes, 'shape', None)}")
    if boxes is not None and not np.isfinite(boxes).all():
        raise ValueError("boxes that are not finite numbers")
    return Features(values.reshape(count, -1), None, boxes)
