"""Reads the tensors in a file of torch.save as NumPy arrays, without PyTorch and without running pickled code.

The file is a zip archive since PyTorch 1.6, and before it a row of pickles with the storages behind them.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

_MAGIC = 0x1950A86A20F9469CFC6C
_KINDS: dict[str, Any] = {
    "DoubleStorage": np.float64, "FloatStorage": np.float32, "HalfStorage": np.float16, "BFloat16Storage": np.uint16,
    "LongStorage": np.int64, "IntStorage": np.int32, "ShortStorage": np.int16, "CharStorage": np.int8,
    "ByteStorage": np.uint8, "BoolStorage": np.bool_,
}  # fmt: skip


class _Storage(NamedTuple):
    kind: str
    key: str


class _View(NamedTuple):
    """A tensor: a part of a storage."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Refused(ValueError):
    """The file loads what could run code."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _KINDS:
            return partial(_Storage, name)
        if (module, name) in (("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_tensor")):
            return lambda storage, offset, size, stride, *_: _View(storage, offset, tuple(size), tuple(stride))
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda view, *_: view
        raise _Refused(f"it loads {module}.{name}, which could run code and is not allowed in a weights file")

    def persistent_load(self, pid: Any) -> Any:
        return pid[1](str(pid[2]))


def read_torch_arrays(path: Path) -> dict[str, np.ndarray]:
    """The tensors of the mapping in the file by their names; bfloat16 as float32. Tied ones are one array.

    :raises ValueError: the file is truncated, damaged, of another kind, or holds objects of other types.
    """
    try:
        with path.open("rb") as file:
            content, read = (_in_archive if zipfile.is_zipfile(file) else _in_row)(file)
            if not isinstance(content, dict):
                raise ValueError(f"it holds a {type(content).__name__}")
            storages: dict[_Storage, np.ndarray] = {}
            arrays: dict[_View, np.ndarray] = {}
            views = {name: view for name, view in content.items() if isinstance(view, _View)}
            for view in views.values():
                if view.storage not in storages:
                    storages[view.storage] = read(view.storage)
                if view not in arrays:
                    arrays[view] = _array(view, storages[view.storage])
            return {name: arrays[view] for name, view in views.items()}
    except OSError:
        raise
    except _Refused as error:
        raise ValueError(f"{path} can't be read: {error}") from None
    except Exception as error:  # a damaged pickle raises errors of many types
        raise ValueError(f"{path} can't be read: it is truncated, damaged, or not a weights file ({error})") from error


def _in_archive(file: Any) -> tuple[Any, Callable[[_Storage], np.ndarray]]:
    archive = zipfile.ZipFile(file)
    (name,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    folder = name.removesuffix("data.pkl")
    content = _Unpickler(io.BytesIO(archive.read(name))).load()
    return content, lambda storage: np.frombuffer(archive.read(f"{folder}data/{storage.key}"), _KINDS[storage.kind])


def _in_row(file: Any) -> tuple[Any, Callable[[_Storage], np.ndarray]]:
    file.seek(0)
    if _Unpickler(file).load() != _MAGIC:
        raise ValueError("it doesn't begin as one")
    _Unpickler(file).load(), _Unpickler(file).load()  # version of the format, and sizes of C's types
    content, keys = _Unpickler(file).load(), _Unpickler(file).load()
    kinds = {view.storage.key: view.storage.kind for view in content.values() if isinstance(view, _View)}
    found = {}
    for key in map(str, keys):
        (count,) = np.frombuffer(file.read(8), np.int64)
        kind = np.dtype(_KINDS[kinds[key]])
        found[key] = np.frombuffer(file.read(int(count) * kind.itemsize), kind, count=int(count))
    return content, lambda storage: found[storage.key]


def _array(view: _View, storage: np.ndarray) -> np.ndarray:
    if storage.dtype == np.uint16:  # bfloat16
        storage = (storage.astype(np.uint32) << 16).view(np.float32)
    places = [(count - 1) * step for count, step in zip(view.size, view.stride, strict=True)]
    if min((view.offset, *view.size, *view.stride)) < 0 or (
        0 not in view.size and view.offset + sum(places) >= len(storage)
    ):
        raise ValueError("a tensor is larger than its storage")
    steps: Sequence[int] = [step * storage.itemsize for step in view.stride]
    return np.asarray(as_strided(storage[view.offset :], view.size, steps), order="C")
