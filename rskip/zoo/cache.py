"""Where fetched models are kept: in torch.hub's folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rskip.zoo.entry import ModelEntry


def cache_folder() -> Path:
    """`rskip` in torch.hub's folder, which `torch.hub.set_dir`, $TORCH_HOME or ~/.cache/torch/hub says."""
    import torch.hub  # takes a second

    return Path(torch.hub.get_dir(), "rskip")


def cached_folder(entry: ModelEntry) -> Path:
    """Where the model's files are kept, or would be.

    The name ends in the beginning of a sum over the files' sums. So another version of the model, which another rskip
    on this machine uses, lies elsewhere, and a file in this folder is either right or damaged.
    """
    sums = "".join(f"{path} {file.sha256}\n" for path, file in sorted(entry.files.items()))
    return cache_folder() / f"{entry.name}-{hashlib.sha256(sums.encode()).hexdigest()[:8]}"
