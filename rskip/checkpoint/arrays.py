"""Reads the parameters of a safetensors file one by one with NumPy, so that only one at a time takes memory."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from rskip.checkpoint.config_file import Header, check_sum
from rskip.settings.errors import SettingError

_KINDS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}  # BF16: its bits


class Arrays:
    """The floats of an open file. `read_header` has checked its header.

    shapes: the shape of each parameter, also of the tied ones.
    """

    def __init__(self, file: BufferedReader, path: Path, header: Header) -> None:
        self._file, self._path, self._tied, self._expected = file, path, header.tied, header.sums
        size = int.from_bytes(file.read(8), "little")
        self._start = 8 + size
        self._stored: dict[str, Any] = json.loads(file.read(size))
        self._sums: dict[str, int] = {}
        self.shapes: Mapping[str, tuple[int, ...]] = header.shapes

    def stored(self, name: str) -> str:
        """The name under which the parameter is stored, which is another name if it is tied."""
        return self._tied.get(name, name)

    def read(self, name: str) -> np.ndarray:
        """The parameter in float32, in memory of its own."""
        name = self.stored(name)
        entry = self._stored[name]
        kind = _KINDS.get(entry["dtype"])
        if kind is None:
            raise SettingError("", f"{name} is stored in {entry['dtype']}", expected="floats")
        values = np.empty(entry["shape"], kind)
        content = values.reshape(-1).view(np.uint8).data
        self._file.seek(self._start + entry["data_offsets"][0])
        self._file.readinto(content)
        self._sums[name] = zlib.crc32(content)
        check_sum(self._expected, name, self._sums[name], path=self._path)
        if entry["dtype"] == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32, copy=False)

    def fingerprint(self, settings: Mapping[str, Any]) -> str:
        """A checksum of the settings and of all parameters that were read."""
        content = json.dumps([settings, self._sums], sort_keys=True, default=str)
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


@contextmanager
def arrays_of(path: Path, header: Header) -> Iterator[Arrays]:
    """The arrays of a file, whose `read_header` gave `header`."""
    with path.open("rb") as file:
        yield Arrays(file, path, header)
