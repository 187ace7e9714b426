"""Makes a store of published bottom-up features (Anderson et al., 2018). N regions (36, or 10 to 100); C is 2,048.

Supported formats: a TSV file with the fields FIELDS, the last two in base64 of float32; or a folder of NUMBER.npz files
with `feat`, `features` or `x`. The boxes of the regions are not stored.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from rskip.captioning.extraction import Extraction
from rskip.captioning.features import IMAGE_IDS, Features, FeatureWriter
from rskip.extras import extra
from rskip.files.names import line_name

with extra("captioning"):
    import numpy as np

FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_VALUES = ("feat", "features", "x")
_BATCH = 64
_MOST_BYTES = 1 << 24  # per array: 2,048 regions of 2,048 float32 values


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
    result, started = Extraction(total=0), time.perf_counter()
    rows = _rows(source, result)
    before = list(islice(rows, _BATCH))  # the store gets the most frequent kind of the first batch
    if not before:
        reason = next(iter(result.failed.values()), "it is empty")
        raise ValueError(f"{source}: not bottom-up features: {reason}")
    dim = Counter(found.values.shape[1] for _, _, found in before).most_common(1)[0][0]
    description = {"backbone": "bottom-up", "names": IMAGE_IDS, "dim": dim, "dtype": dtype}
    with FeatureWriter(output, description) as writer:
        for place, name, found in chain(before, rows):
            if name in writer.images:
                result.kept += 1
            elif problem := writer.add(name, "", found):
                result.failed[place] = f"{place}: {problem}"
            else:
                result.done += 1
        if not writer.images:
            raise ValueError(next(iter(result.failed.values())))
        writer.finish()
    result.seconds = time.perf_counter() - started
    return result


def _rows(source: Path, result: Extraction) -> Iterator[tuple[str, str, Features]]:
    """The place, the image id and the features of each image. Damaged ones are added to `failed`, all to `total`."""
    places: Iterable[tuple[str, Any]]
    read: Callable[[Any], tuple[str, np.ndarray]]
    if source.is_file():
        read, lines = _read_line, source.open("rb")
        places = ((f"{line_name(source)}, line {number}", line) for number, line in enumerate(lines, start=1))
    elif source.is_dir():
        read, places = _read_npz, ((line_name(path), path) for path in sorted(source.glob("*.npz")))
    else:
        raise FileNotFoundError(f"{source}: no such file or folder: expected a .tsv file or a folder of .npz files")
    for place, given in places:
        result.total += 1
        try:
            name, values = read(given)
            if not values.ndim or not values.size:
                raise ValueError(f"features of shape {values.shape}")
        except ValueError as error:
            result.failed[place] = f"{place}: {error}"
            continue
        yield place, name, Features(values.reshape(-1, values.shape[-1]), None)


def _read_line(line: bytes) -> tuple[str, np.ndarray]:
    """The image id and the values (N, C) in a line of a TSV file."""
    cells = line.rstrip(b"\r\n").split(b"\t")
    if len(cells) != len(FIELDS):
        raise ValueError(f"{len(cells)} fields, expected {len(FIELDS)}: {', '.join(FIELDS)}")
    content, count = base64.b64decode(cells[5], validate=True), int(cells[3])
    if count < 1 or not content or len(content) % (4 * count):
        raise ValueError(f"{len(content):,} bytes for {count} boxes: the file is truncated or damaged")
    return str(int(cells[0])), np.frombuffer(content, dtype="<f4").reshape(count, -1)


def _read_npz(path: Path) -> tuple[str, np.ndarray]:
    """The image id and the values (..., C), which may form a grid, in a .npz file."""
    number = path.stem.rpartition("_")[2]
    if not number.isdecimal():
        raise ValueError("its name doesn't end in the number of an image")
    try:
        with np.load(path, allow_pickle=False) as archive:
            name = next(name for name in _VALUES if name in archive.files)
            if (size := archive.zip.getinfo(f"{name}.npy").file_size) > _MOST_BYTES + (1 << 14):  # with its header
                raise ValueError(f"{size:,} bytes, expected at most {_MOST_BYTES:,}")
            values: np.ndarray = archive[name]
    except StopIteration:
        raise ValueError(f"none of the arrays {', '.join(_VALUES)}") from None
    except Exception as error:  # NumPy, zipfile and zlib raise errors of any type for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"no array of numbers can be read ({reason})") from None
    if values.dtype.kind not in "fiu":
        raise ValueError(f"an array of {values.dtype}, expected real numbers")
    return str(int(number)), values
