"""Computes the edit paths that levenshtein_transformer and insertion_transformer learn from.

fairseq computes them in its extension `fairseq.libnat`, which can't be built from the release on PyPI, because its
source is missing there. If the extension is missing, this patch provides a module of that name with the one function
that fairseq's models call, in NumPy.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from fairseq_compat.patch import Patch


def suggested_ed2_path(
    sources: list[list[int]], targets: list[list[int]], terminal: int
) -> list[list[list[int]]]:
    """A shortest path from each source to its target by insertions and deletions of tokens.

    For a source of n tokens it has n + 2 lists. List k contains the tokens to insert after the first k tokens, or
    [terminal] for none. The last list contains 1 for each token to delete and 0 for each to keep. Among equally short
    paths it is the extension's: read from the end, it inserts before it deletes, and deletes before it keeps.
    """
    import numpy as np

    paths = []
    for source, target in zip(sources, targets, strict=True):
        # common[i, j]: length of the longest common subsequence of source[:i] and target[:j]
        equal = np.equal.outer(source, target)
        common = np.zeros((len(source) + 1, len(target) + 1), dtype=np.int64)
        for i, row in enumerate(equal):
            np.maximum(common[i, 1:], common[i, :-1] + row, out=common[i + 1, 1:])
            np.maximum.accumulate(common[i + 1], out=common[i + 1])
        length = common.tolist()
        insertions: list[list[int]] = [[] for _ in range(len(source) + 1)]
        deleted = [0] * len(source)
        i, j = len(source), len(target)
        while i or j:
            if j and length[i][j - 1] == length[i][j]:
                j -= 1
                insertions[i].append(target[j])
            elif i and length[i - 1][j] == length[i][j]:
                i -= 1
                deleted[i] = 1
            else:
                i, j = i - 1, j - 1
        paths.append([tokens[::-1] or [terminal] for tokens in insertions] + [deleted])
    return paths


def give_libnat(module: Any) -> None:
    """Provides `fairseq.libnat` before the first model that needs it is built, unless fairseq's own exists."""
    import fairseq

    try:
        from fairseq import libnat
    except ImportError:
        libnat = ModuleType("fairseq.libnat", "Edit paths, by fairseq_compat.")
        libnat.suggested_ed2_path = suggested_ed2_path  # type: ignore[attr-defined]
        sys.modules["fairseq.libnat"] = fairseq.libnat = libnat


def replace_loader(module: Any) -> None:
    """Provides `fairseq.libnat`, and replaces `load_libnat`."""
    give_libnat(module)
    module.load_libnat = load_libnat


def load_libnat() -> tuple[Any, bool]:
    """Replaces fairseq's function, which prints a line at every update if libnat_cuda is missing."""
    try:
        from fairseq import libnat_cuda

        return libnat_cuda, True
    except ImportError:
        from fairseq import libnat

        return libnat, False


LIBNAT = Patch(
    name="libnat",
    symptom="levenshtein_transformer, insertion_transformer: ImportError: cannot import name 'libnat'",
    after={
        "fairseq.models.nat.levenshtein_utils": replace_loader,
        "fairseq.models.nat.insertion_transformer": give_libnat,
    },
)
