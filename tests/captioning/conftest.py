from __future__ import annotations

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def drawn():
    """Draws a picture of some blocks of colour."""

    def drawn(seed=0, size=(60, 40)):
        colours = np.random.default_rng(seed).integers(0, 256, size=(4, 6, 3), dtype=np.uint8)
        return Image.fromarray(colours).resize(size, Image.Resampling.NEAREST)

    return drawn


@pytest.fixture
def pictures(tmp_path, drawn):
    """A folder of five drawn pictures."""
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    for number, name in enumerate(["b.jpg", "a.png", "c.JPG", "more/a.png", "d.webp"]):
        drawn(number).save(folder / name)
    return folder
