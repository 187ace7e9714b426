"""A small text, prepared, and a model that was trained on it for a few iterations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.language_modeling.data import load_data
from rskip.language_modeling.preparation import TextOptions, prepare_text
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.training import train

TEXT = "the cat sat\non the mat\n\n\tthe dog ran\r\nto the cat; it sat.\n" * 12
SETTINGS: dict[str, Any] = {
    "connection": "2rskip+ln", "layers": 2, "heads": 2, "features": 16, "context": 8, "batch_size": 4,
    "iterations": 11, "warmup_iterations": 2, "evaluate_every": 6, "save_every": 4,
}  # fmt: skip


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file."""
    path = tmp_path_factory.mktemp("text") / "cats.txt"
    path.write_bytes(TEXT.encode())
    return path


@pytest.fixture(scope="session")
def prepared(text: Path) -> Path:
    """Its folder, with characters as tokens."""
    folder = text.with_name("characters")
    assert prepare_text(text, folder, options=TextOptions(valid_share=0.2))
    return folder


@pytest.fixture
def small() -> dict[str, Any]:
    """The settings of `train_here`."""
    return dict(SETTINGS)


@pytest.fixture(scope="session")
def train_here(prepared: Path) -> Callable[..., None]:
    """Trains or resumes on the CPU, to the end."""

    def run(folder: Path, *, seed: int = 5, tracker: Any = None, **changes: Any) -> None:
        settings = TrainingSettings(**{**SETTINGS, **changes})
        train(settings, data=load_data(prepared), folder=folder, seed=seed, device="cpu", tracker=tracker)

    return run


@pytest.fixture(scope="session")
def trained(train_here: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that was never stopped."""
    folder = tmp_path_factory.mktemp("trained")
    train_here(folder, dropout=0.1)
    return folder
