"""Restores `bitarray.util.rindex`, which bitarray 3 removed and fairseq's Huffman coder needs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fairseq_compat.patch import Patch


def rindex(bits: Any, value: int) -> int:
    """The last index of `value` in a bitarray. Raises ValueError if it is absent."""
    return bits.index(value, right=True)


def give_rindex(module: Any) -> None:
    """Replaces the coder's `util` by a copy of bitarray's with rindex. bitarray itself does not change."""
    if not hasattr(module.util, "rindex"):
        view = ModuleType("bitarray.util", "bitarray.util, with rindex.")
        vars(view).update(vars(module.util), rindex=rindex)
        module.util = view


BITARRAY_RINDEX = Patch(
    name="bitarray-rindex",
    symptom="data sets with a Huffman code: AttributeError: module 'bitarray.util' has no attribute 'rindex'",
    after={"fairseq.data.huffman.huffman_coder": give_rindex},
)
