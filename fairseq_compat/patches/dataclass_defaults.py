"""Allows fairseq's dataclass instances as defaults of dataclass fields.

Python 3.11 and later refuse a default whose class has no hash. fairseq's configurations are such classes, and are each
other's defaults. A `default_factory` does not help, because fairseq reads the field's `.default`. With this patch
fairseq's configurations and classes derived from them are hashed by identity. That restores Python 3.10's rule for them
and does not affect any other class.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from fairseq_compat.patch import Patch


def hash_by_identity(cls: type, **options: Any) -> None:
    """`__init_subclass__` of fairseq's base configuration: an explicit hash, which @dataclass then keeps."""
    cls.__hash__ = object.__hash__  # type: ignore


@contextlib.contextmanager
def identity_hashes() -> Iterator[None]:
    """A context for the base configuration's module: gives the base class `hash_by_identity` when it is defined."""
    original = dataclasses.dataclass

    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        if cls is not None and cls.__name__ == "FairseqDataclass":
            cls.__init_subclass__ = classmethod(hash_by_identity)
        return original(cls, **options)

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = original


DATACLASS_DEFAULTS = Patch(
    name="dataclass-defaults",
    symptom="`import fairseq` from Python 3.11 on: ValueError: mutable default ... use default_factory",
    during={"fairseq.dataclass.configs": identity_hashes},
)
