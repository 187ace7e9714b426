"""Loading models without garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rskip.cli._loading import loading_for_good


@pytest.fixture
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()  # as tests/conftest.py leaves it


def test_garbage_is_looked_for_again_after_it_and_after_an_error(thawed: None) -> None:
    with pytest.raises(ValueError, match="no model"), loading_for_good():
        assert not gc.isenabled()
        raise ValueError("no model")
    assert gc.isenabled() and gc.get_freeze_count()
