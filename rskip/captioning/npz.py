"""Reads arrays of numbers from .npz files, with bounded memory and without pickles."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rskip.machine.extras import extra

with extra("captioning"):
    import numpy as np

MOST_BYTES = 1 << 24  # per array: 2,048 regions of 2,048 float32 values
_HEADER = 1 << 14  # more bytes than NumPy accepts before an array
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the ones that NumPy writes


def read_numbers(path: Path, names: Sequence[str]) -> np.ndarray | None:
    """The array of the first name that the file contains, or None if it contains none of them.

    :raises ValueError: the file is not an .npz file or is damaged; or the array is encrypted, compressed by a method
        that NumPy doesn't use, larger than MOST_BYTES, or not of real numbers.
    """
    if not path.is_file():
        raise ValueError("not a file")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            found = next((members[f"{name}.npy"] for name in names if f"{name}.npy" in members), None)
            if found is None:
                return None
            if found.compress_type not in _COMPRESSIONS:
                raise ValueError(f"compressed by method {found.compress_type}, expected a method of NumPy")
            if found.file_size > MOST_BYTES + _HEADER:
                raise ValueError(f"{found.file_size:,} bytes, expected at most {MOST_BYTES:,}")
            with archive.open(found) as member:
                return _array(member.read(found.file_size + 1))
    except Exception as error:  # zipfile, zlib and NumPy raise errors of any type for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"no array of numbers can be read ({reason})") from None


def _array(content: bytes) -> np.ndarray:
    """The array in the content of a .npy file."""
    file = io.BytesIO(content)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in headers:
        raise ValueError(f"a .npy file of version {version[0]}.{version[1]}, expected 1.0 or 2.0")
    shape, column_major, dtype = headers[version](file)
    if dtype.kind not in "fiu":
        raise ValueError(f"an array of {dtype}, expected real numbers")
    size, given = math.prod(shape) * dtype.itemsize, len(content) - file.tell()
    if size != given or min(shape, default=0) < 0:
        raise ValueError(f"{given:,} bytes for an array of shape {shape} of {dtype}")
    values = np.frombuffer(content, dtype, offset=file.tell())
    return values.reshape(shape, order="F" if column_major else "C")
