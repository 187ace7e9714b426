"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real corpora that tests read where it is present (RSKIP_SHARED, or ../shared)."""
    folder = Path(os.environ.get("RSKIP_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"needs the corpora in {folder}/data: set RSKIP_SHARED to the folder that holds them")
    return folder
