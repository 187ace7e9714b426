"""Published bottom-up features of regions (Anderson et al., 2018) into a store. N regions, 36 or 10 to 100; C is 2,048.

Their forms: a TSV file of the fields FIELDS, whose last two are base64 of float32; a folder of NUMBER.npz with `feat`,
or with `x` and `bbox`.
"""

from __future__ import annotations

import base64
import binascii
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np

from rskip.captioning.extraction import Extraction
from rskip.captioning.features import IMAGE_IDS, Features, FeatureWriter

FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_VALUES, _BOXES = ("feat", "features", "x"), ("bbox", "boxes")
_BATCH = 64

Row = tuple[str, "Features | str"]  # image id and features, or a place and what is wrong there


def store_bottom_up(
    source: Path,
    output: Path,
    *,
    dtype: Literal["float16", "float32"] = "float16",
    report: Callable[[Extraction], None] = lambda _: None,
) -> Extraction:
    """Makes a store of published features, or goes on with one. What is damaged is left out; of an image id that comes
    twice the first is taken. The store's names are image ids, and its pictures are found by file names that end in one.

    :param source: a .tsv file, or a folder of .npz files.
    :raises FileNotFoundError: there is none.
    :raises ValueError: it holds no such features.
    """
    rows = _read_tsv(source) if source.is_file() else _read_npz(source)
    result, started = Extraction(total=0), time.perf_counter()
    before: list[Row] = []
    for row in rows:  # up to the first whole one, which tells the dim
        before.append(row)
        if isinstance(row[1], Features):
            break
    else:
        reason = before[0][1] if before else "it is empty"
        raise ValueError(f"{source}: no bottom-up features: {reason}")
    first = before[-1][1]
    assert isinstance(first, Features)
    description = {"backbone": "bottom-up", "names": IMAGE_IDS, "dim": first.values.shape[1], "dtype": dtype}
    if first.boxes is not None:
        description["boxes"] = True
    with FeatureWriter(output, description) as writer:
        every = chain(before, rows)
        while batch := list(islice(every, _BATCH)):
            whole: dict[str, Features] = {}
            for name, found in batch:
                result.total += 1
                if isinstance(found, str):
                    result.failed[name] = f"{name}: {found}"
                elif name in writer.sums or name in whole:
                    result.kept += 1
                else:
                    whole[name] = found
            writer.add((name, "", found) for name, found in whole.items())
            result.done += len(whole)
            result.seconds = time.perf_counter() - started
            report(result)
        writer.finish()
    return result


def _read_tsv(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            cells = line.rstrip(b"\r\n").split(b"\t")
            try:
                if len(cells) != len(FIELDS):
                    raise ValueError(f"{len(cells)} fields, expected {len(FIELDS)}: {', '.join(FIELDS)}")
                name, count = str(int(cells[0])), int(cells[3])
                boxes, values = (_numbers(cell, count) for cell in cells[4:])
                if boxes.shape[1] != 4:
                    raise ValueError(f"boxes of {boxes.shape[1]} numbers, expected 4")
                yield name, Features(values, None, boxes)
            except ValueError as error:
                yield f"{path}, line {number:,}", str(error)


def _numbers(text: bytes, count: int) -> np.ndarray:
    """Shape: (count, numbers a row)"""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64 ({error}): the file is cut off or damaged") from None
    if count < 1 or not content or len(content) % (4 * count):
        raise ValueError(f"{len(content):,} bytes for {count} boxes: the file is cut off or damaged")
    return np.frombuffer(content, dtype="<f4").reshape(count, -1)


def _read_npz(folder: Path) -> Iterator[Row]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such file or folder: expected a .tsv file or a folder of .npz files")
    for path in sorted(folder.glob("*.npz")):
        number = path.stem.rpartition("_")[2]
        try:
            if not number.isdecimal():
                raise ValueError("its name doesn't end in an image's number")
            with np.load(path, allow_pickle=False) as arrays:
                values, boxes = (
                    next((arrays[key] for key in keys if key in arrays), None) for keys in (_VALUES, _BOXES)
                )
            if values is None:
                raise ValueError(f"none of the arrays {', '.join(_VALUES)}")
            values = values.reshape(-1, values.shape[-1])  # some have a grid of them
            if not len(values) or (boxes is not None and boxes.shape != (len(values), 4)):
                raise ValueError(f"features of shape {values.shape}, boxes of {getattr(boxes, 'shape', None)}")
            yield str(int(number)), Features(values, None, boxes)
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
            yield str(path), " ".join(str(error).split())
