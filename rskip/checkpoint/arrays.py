"""Reads the parameters of a safetensors file one by one with NumPy, so that only one at a time takes memory.

`ModelFile` is a file of ours; a Hugging Face folder gives its parameters as `LoadedArrays`.
"""

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

from rskip.checkpoint.config_file import check_sum, read_header
from rskip.settings.errors import SettingError

FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}  # BF16: its bits


class Arrays:
    """The floats of an open file, whose header is right.

    :param tied: see `Header.tied`. :param sums: see `Header.sums`.

    shapes: the shape of each parameter, also of the tied ones. kinds: the number format of those that are stored.
    """

    def __init__(self, file: BufferedReader, path: Path, *, tied: Mapping[str, str], sums: Mapping[str, int]) -> None:
        self._file, self._path, self._tied, self._expected = file, path, tied, sums
        size = int.from_bytes(file.read(8), "little")
        self._start = 8 + size
        self._stored: dict[str, Any] = json.loads(file.read(size))
        self._stored.pop("__metadata__", None)
        self._sums: dict[str, int] = {}
        self.kinds: dict[str, str] = {name: entry["dtype"] for name, entry in self._stored.items()}
        stored = {name: tuple(entry["shape"]) for name, entry in self._stored.items()}
        self.shapes: dict[str, tuple[int, ...]] = stored | {name: stored[other] for name, other in tied.items()}

    def stored(self, name: str) -> str:
        """The name under which the parameter is stored, which is another name if it is tied."""
        return self._tied.get(name, name)

    def read(self, name: str) -> np.ndarray:
        """The parameter in float32, in memory of its own."""
        name = self.stored(name)
        entry = self._stored[name]
        kind = FLOATS.get(entry["dtype"])
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

    def fingerprint(self) -> str:
        """A checksum of all parameters that were read."""
        return _digest(self._sums)


class LoadedArrays:
    """Like `Arrays`, of arrays in memory. Names with one array are tied."""

    def __init__(self, model: Mapping[str, np.ndarray]) -> None:
        self._model = model
        self._first = {id(array): name for name, array in reversed([*model.items()])}
        self.shapes: dict[str, tuple[int, ...]] = {name: array.shape for name, array in model.items()}

    def stored(self, name: str) -> str:
        """The name under which the parameter is stored, which is another name if it is tied."""
        return self._first[id(self._model[name])]

    def read(self, name: str) -> np.ndarray:
        """The parameter in float32."""
        return self._model[name].astype(np.float32, copy=False)

    def fingerprint(self) -> str:
        """A checksum of all parameters."""
        return _digest({name: zlib.crc32(np.ascontiguousarray(array).data) for name, array in self._model.items()})


def _digest(sums: Mapping[str, int]) -> str:
    return hashlib.blake2b(json.dumps(sums, sort_keys=True).encode(), digest_size=16).hexdigest()


class ModelFile:
    """A safetensors file with a model of ours. Unpickling opens it again.

    config: its `Checkpoint.config`. shapes: of its parameters.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._header = read_header(path)
        self.config, self.shapes = self._header.config, self._header.shapes

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    @contextmanager
    def parameters(self) -> Iterator[Arrays]:
        """The parameters."""
        with self.path.open("rb") as file:
            yield Arrays(file, self.path, tied=self._header.tied, sums=self._header.sums)
