"""Files that torch.save wrote, read back without running what is pickled in them."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rskip.machine.torch_errors import refused_global


def read_torch_file(
    path: Path, *, kind: str, advice: str = "", allowed: Sequence[Any] = (), mmap: bool = False
) -> dict[str, Any]:
    """The mapping that the file holds, its tensors on the CPU.

    :param kind: what the file should be, for messages.
    :param advice: the end of the messages.
    :param allowed: types, beside tensors and plain values, that it may hold; as torch's `safe_globals` takes them.
    :param mmap: leave the tensors in the file, where its format allows that.
    :raises ValueError: it is cut off, damaged, of another kind, or holds objects of other types.
    """
    import torch
    from torch.serialization import get_safe_globals, safe_globals

    try:
        # safe_globals forgets its types at the end, also those that someone else had allowed before
        known = get_safe_globals()
        with safe_globals([each for each in allowed if each not in known]):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap and zipfile.is_zipfile(path))
    except Exception as error:  # what a damaged pickle raises depends on the bytes: ten types were seen
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file itself can't be opened
        reason = f"it is cut off, damaged, or no {kind}"
        if refused := refused_global(error):
            reason = f"it asks for {refused}, which no {kind} needs and which could run code"
        raise ValueError(f"{path} can't be read: {reason}{advice}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no {kind}: it holds a {type(content).__name__}{advice}")
    return content
