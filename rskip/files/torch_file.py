"""Reads files of torch.save without running pickled code."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.machine.torch_errors import refused_global

if TYPE_CHECKING:
    from torch import Tensor


def read_torch_file(
    path: Path, *, kind: str, advice: str = "", allowed: Sequence[Any] = (), mmap: bool = False
) -> dict[str, Any]:
    """Reads the mapping in the file, with tensors on the CPU. Compares the content with its checksums (CRC-32).

    :param kind: the expected kind of file, for messages.
    :param advice: the end of the messages.
    :param allowed: types that the file may hold in addition to tensors and plain values; as for torch's `safe_globals`.
    :param mmap: leave the tensors in the file, if its format allows it; they are then not compared.
    :raises ValueError: the file is truncated, damaged, of another kind, or holds objects of other types.
    """
    import torch
    from torch.serialization import get_safe_globals, safe_globals

    try:
        is_zip = zipfile.is_zipfile(path)
        # at its end, safe_globals forgets its types, even those that were allowed before
        known = get_safe_globals()
        with safe_globals([each for each in allowed if each not in known]), ThreadPoolExecutor(1) as beside:
            changed = beside.submit(_changed_record, path, tensors=not mmap) if is_zip else None
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap and is_zip)
        if changed is not None and (record := changed.result()):
            raise ValueError(f"{record} was changed")
    except Exception as error:  # a damaged pickle raises errors of many types (ten were seen)
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file itself can't be opened
        reason = f"it is truncated, damaged, or not a {kind}"
        if refused := refused_global(error):
            reason = f"it loads {refused}, which could run code and is not allowed in a {kind}"
        raise ValueError(f"{path} can't be read: {reason}{advice}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a {kind}: it holds a {type(content).__name__}{advice}")
    return content


def _changed_record(path: Path, *, tensors: bool) -> str | None:
    """The first record whose CRC-32 doesn't match, which PyTorch doesn't check; None if all match.

    :param tensors: check tensors too.
    """
    with zipfile.ZipFile(path) as archive:
        for record in archive.infolist():
            if tensors or "/data/" not in record.filename:
                with archive.open(record) as content:
                    try:
                        while content.read(2**22):
                            pass
                    except zipfile.BadZipFile:  # raised at the end of the record
                        return record.filename
    return None


def weights_difference(own: Mapping[str, Tensor], given: Mapping[str, Any]) -> str | None:
    """How the weights in a file differ from those of a model in name, type or shape; None if they don't.

    Weights are in float16, bfloat16, float32 or float64. Tensors that hold integers in the model (counts) have the
    same type in the file.
    """
    import torch

    floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for name in sorted(own.keys() ^ given.keys(), key=str):
        return f"the file has no {name}" if name in own else f"the file has {name} too"
    for name, expected in own.items():
        found = given[name]
        if not isinstance(found, torch.Tensor) or found.layout != torch.strided or found.is_meta:
            return f"{name} is not a dense tensor"
        if found.dtype not in floats if expected.is_floating_point() else found.dtype != expected.dtype:
            kind = "floats" if expected.is_floating_point() else str(expected.dtype)
            return f"{name} is {found.dtype}, expected {kind}"
        if found.shape != expected.shape:
            return f"{name} has the shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    return None
