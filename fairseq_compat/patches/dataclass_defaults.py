"""Instances of dataclasses as defaults of a dataclass's fields.

Python 3.11 and later refuse a default whose class has no hash. fairseq's configurations are such classes and
serve as each other's defaults. A `default_factory` is no cure, since fairseq reads the field's `.default`. So
fairseq's configurations, and what users derive from them, get the hash of identity: that brings back the rule
of Python 3.10 for them and leaves every other class alone.
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
    """While the base configuration's module runs: gives the base class, once defined, `hash_by_identity`."""
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


def active() -> bool:
    from fairseq.dataclass.configs import CommonConfig

    return CommonConfig.__hash__ is object.__hash__


DATACLASS_DEFAULTS = Patch(
    name="dataclass-defaults",
    modules=("fairseq.dataclass.configs",),
    symptom="`import fairseq` from Python 3.11 on: ValueError: mutable default ... use default_factory",
    during=identity_hashes,
    active=active,
)
