"""Silences known warnings about fairseq's own code, which its users can't fix, and no others."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from fairseq_compat.patch import Patch

KNOWN = (
    # PyTorch's, about code in fairseq
    r"`torch\.jit\.script` is deprecated",
    r"`torch\.cuda\.amp\.(autocast|GradScaler)\(args\.\.\.\)` is deprecated",
    r"Support for mismatched key_padding_mask and attn_mask is deprecated",
    r"`broadcast_buffers` is deprecated",
    r"'pin_memory' argument is set as true but no accelerator is found",
    # Hydra 1.3's, about configurations that fairseq wrote for 1.0
    r"\s*hydra\.experimental\.(initialize|compose)\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"\s*In 'config': Usage of deprecated keyword in package header '# @package _group_'",
    r"\s*'[\w.-]+' is validated against ConfigStore schema with the same name",
    r"\s*The strict flag in the compose API is deprecated",
    r"\s*Future Hydra versions will no longer change working directory at job runtime by default",
)


@contextlib.contextmanager
def known_warnings_silenced() -> Iterator[None]:
    """Adds one permanent filter per known warning."""
    for message in KNOWN:
        warnings.filterwarnings("ignore", message=message)
    yield


KNOWN_WARNINGS = Patch(
    name="known-warnings",
    symptom="pages of deprecation warnings about fairseq's own code",
    during={"fairseq": known_warnings_silenced},
)
