"""Small data for `rskip analyse`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from rskip.vision import subject
from rskip.vision.data import ImageSet
from tests.corpora.mmap_files import mmap_files


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 training images and 20 test images in the place of CIFAR-10's, for `rskip analyse`."""

    def images(dataset: str, data: str | None, split: str, download: bool) -> ImageSet:
        count = {"train": 30, "test": 20}[split]
        generator = torch.Generator().manual_seed(count)
        pixels = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
        labels = torch.randint(10, (count,), generator=generator)
        return ImageSet(pixels, labels, tuple(f"class {number}" for number in range(10)))

    monkeypatch.setattr(subject, "_images", images)


@pytest.fixture
def few_pairs(root: Path, tmp_path: Path) -> Path:
    """A folder of four sentence pairs, binarised with the dictionaries of the published English-German models."""
    folder = tmp_path / "multi30k-en-de"
    folder.mkdir()
    for language in ("en", "de"):
        shutil.copy(root / f"checkpoints/multi30k_en_de/sas/dict.{language}.txt", folder)
    for split in ("train", "valid"):
        mmap_files(folder / f"{split}.en-de.en", [[4, 5, 6, 2], [7, 2], [8, 9, 10, 11, 12, 2], [13, 14, 2]])
        mmap_files(folder / f"{split}.en-de.de", [[15, 2], [16, 17, 18, 19, 2], [20, 21, 22, 2], [23, 24, 2]])
    return folder
