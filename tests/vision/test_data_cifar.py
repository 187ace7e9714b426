"""CIFAR's folders: found, fetched, verified, read."""

from __future__ import annotations

import hashlib
import lzma
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rskip.vision.data import load_dataset
from rskip.vision.datasets import DATASETS

datasets = pytest.importorskip("torchvision.datasets")
FOLDER = "cifar-10-batches-py"


@dataclass(frozen=True)
class TinyCifar:
    """A CIFAR-10 of 5 * 4 training and 3 test images, whose sums torchvision takes for the official ones."""

    folder: Path
    archive: Path
    pixels: np.ndarray
    labels: list[int]
    names: list[str]


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_pickle(path: Path, content: object) -> list[str]:
    path.write_bytes(pickle.dumps(content))
    return [path.name, md5(path)]


@pytest.fixture
def tiny(tmp_path: Path, file_server: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> TinyCifar:
    """In `server`: the folder, and its archive at the address of the download."""
    server = tmp_path / "server"
    server.mkdir()
    address = file_server(server).url
    folder = server / FOLDER
    folder.mkdir()
    generator = np.random.default_rng(1)
    pixels = generator.integers(256, size=(23, 3072), dtype=np.uint8)
    labels = generator.integers(10, size=23).tolist()
    names = [f"class {number}" for number in range(10)]
    parts = [slice(4 * number, 4 * number + 4) for number in range(5)]
    train = [
        write_pickle(folder / f"data_batch_{number}", {"data": pixels[part], "labels": labels[part]})
        for number, part in enumerate(parts, start=1)
    ]
    test = [write_pickle(folder / "test_batch", {"data": pixels[20:], "labels": labels[20:]})]
    meta = write_pickle(folder / "batches.meta", {"label_names": names})
    archive = server / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, FOLDER)
    monkeypatch.setattr(datasets.CIFAR10, "train_list", train)
    monkeypatch.setattr(datasets.CIFAR10, "test_list", test)
    monkeypatch.setattr(datasets.CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    monkeypatch.setattr(datasets.CIFAR10, "url", f"{address}/{archive.name}")
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", md5(archive))
    return TinyCifar(folder, archive, pixels.reshape(23, 3, 32, 32), labels, names)


def test_images_labels_and_names_are_the_files(tiny):
    for train, part in ((True, slice(20)), (False, slice(20, 23))):
        images = load_dataset("cifar10", tiny.folder, train=train)
        assert images.images.is_contiguous() and images.images.dtype == torch.uint8
        assert np.array_equal(images.images.numpy(), tiny.pixels[part])
        assert images.labels.tolist() == tiny.labels[part]
        assert images.classes == tuple(tiny.names)
        assert (images.mean, images.std) == (DATASETS["cifar10"].mean, DATASETS["cifar10"].std)


def test_the_folder_may_be_given_or_the_one_that_holds_it_or_have_another_name(tiny, tmp_path, monkeypatch):
    expected = tiny.pixels[20:]
    assert np.array_equal(load_dataset("cifar10", tiny.folder.parent, train=False).images, expected)
    renamed = tiny.folder.rename(tmp_path / "pictures")
    assert np.array_equal(load_dataset("cifar10", renamed, train=False).images, expected)
    monkeypatch.chdir(renamed)
    assert np.array_equal(load_dataset("cifar10", ".", train=False).images, expected)


def test_packed_batches_are_unpacked_into_the_cache(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "data"))
    folder = tiny.folder.rename(tmp_path / "mirror")
    for path in list(folder.iterdir()):
        Path(f"{path}.xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    before = sorted(folder.iterdir())
    for _ in range(2):
        assert np.array_equal(load_dataset("cifar10", folder, train=False).images, tiny.pixels[20:])
    assert sorted(folder.iterdir()) == before

    shutil.rmtree(tmp_path / "data")
    (folder / "test_batch.xz").write_bytes(lzma.compress(b"another"))
    with pytest.raises(ValueError, match=rf"^{folder}/test_batch.xz, unpacked, has the md5 "):
        load_dataset("cifar10", folder, train=False)
    (folder / "test_batch.xz").unlink()
    with pytest.raises(FileNotFoundError, match=rf"^{folder}/test_batch is missing, and so is a compressed copy: get"):
        load_dataset("cifar10", folder, train=False)


def test_without_a_folder_it_is_looked_for_in_the_data_folder(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    tiny.folder.parent.rename(tmp_path / "data" / "cifar10")
    assert len(load_dataset("cifar10", train=True)) == 20


def test_cifar100_has_fine_labels_and_its_own_mean(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    pixels = np.random.default_rng(1).integers(256, size=(3, 3072), dtype=np.uint8)
    content = {"data": pixels, "fine_labels": [99, 0, 5], "coarse_labels": [1, 2, 3]}
    names = [f"class {number}" for number in range(100)]
    meta = write_pickle(folder / "meta", {"fine_label_names": names, "coarse_label_names": []})
    monkeypatch.setattr(datasets.CIFAR100, "train_list", [write_pickle(folder / "train", content)])
    monkeypatch.setattr(datasets.CIFAR100, "test_list", [write_pickle(folder / "test", content)])
    monkeypatch.setattr(datasets.CIFAR100, "meta", {"filename": "meta", "key": "fine_label_names", "md5": meta[1]})
    images = load_dataset("cifar100", tmp_path, train=True)
    assert images.labels.tolist() == [99, 0, 5] and images.classes == tuple(names)
    assert (images.mean, images.std) == (DATASETS["cifar100"].mean, DATASETS["cifar100"].std)


class Trap:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["data_batch_4", "batches.meta"])
def test_a_damaged_file_is_named_and_nothing_is_unpickled(tiny, tmp_path, name):
    path = tiny.folder / name
    expected = md5(path)
    write_pickle(path, Trap(tmp_path / "sprung"))
    with pytest.raises(ValueError) as error:
        load_dataset("cifar10", tiny.folder, train=True)
    message = str(error.value)
    assert message.startswith(f"{path} has the md5 {md5(path)}, expected {expected}: get it again, ")
    assert "\n" not in message
    assert not (tmp_path / "sprung").exists()


def test_a_download_leaves_the_files_and_nothing_else(tiny, tmp_path):
    root = tmp_path / "new" / "data"
    (root / FOLDER).mkdir(parents=True)
    (root / FOLDER / "data_batch_1").write_text("left by a killed process")
    images = load_dataset("cifar10", root, train=True, download=True)
    assert np.array_equal(images.images, tiny.pixels[:20])
    assert [path.name for path in root.iterdir()] == [FOLDER]
    assert sorted(os.listdir(root / FOLDER)) == sorted(os.listdir(tiny.folder))


@pytest.fixture
def real(unpacked_cifar: Callable[[str], Path]) -> Path:
    """The real CIFAR-10."""
    return unpacked_cifar("cifar10") / FOLDER


@pytest.mark.slow
def test_mean_and_std_are_those_of_the_real_training_images(real):
    images = load_dataset("cifar10", real, train=True).images
    for channel, (mean, std) in enumerate(zip(DATASETS["cifar10"].mean, DATASETS["cifar10"].std, strict=True)):
        counts = images[:, channel].flatten().bincount(minlength=256).double()  # exact, and needs no large copy
        values = torch.arange(256, dtype=torch.float64) / 255
        found = float((counts * values).sum() / counts.sum())
        variance = float((counts * (values - found) ** 2).sum() / counts.sum())
        assert round(found, 4) == mean
        assert round(variance**0.5, 4) == std
