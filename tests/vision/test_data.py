"""CIFAR's folders: found, fetched, verified, read. Batches: crops, flips and normalisation against torchvision's."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
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
from torch import Tensor

from rskip.machine.ranks import Ranks
from rskip.vision.data import (
    ImageSet,
    TrainingBatches,
    crop_and_flip,
    evaluation_batches,
    load_dataset,
    normalise,
)
from rskip.vision.datasets import DATASETS

datasets = pytest.importorskip("torchvision.datasets")
FOLDER = "cifar-10-batches-py"
COUNT, BATCH = 300, 64  # five batches an epoch, 44 images in the last
EVERY_CROP = list(itertools.product(range(9), range(9), (False, True)))  # top, left, flipped
MEAN_10, STD_10 = (torch.tensor(each) for each in (DATASETS["cifar10"].mean, DATASETS["cifar10"].std))


@dataclass(frozen=True)
class TinyCifar:
    """A CIFAR-10 of 5 * 4 training and 3 test images, whose sums torchvision takes for the official ones."""

    folder: Path
    pixels: np.ndarray
    labels: list[int]
    names: list[str]

    def is_in(self, images: ImageSet, *, train: bool) -> bool:
        return np.array_equal(images.images, self.pixels[:20] if train else self.pixels[20:])


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_pickle(path: Path, content: object) -> list[str]:
    path.write_bytes(pickle.dumps(content))
    return [path.name, md5(path)]


@pytest.fixture
def tiny(tmp_path: Path, file_server: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> TinyCifar:
    """In `server`: the folder, and its archive at the address of the download."""
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "data"))
    folder = tmp_path / "server" / FOLDER
    folder.mkdir(parents=True)
    generator = np.random.default_rng(1)
    pixels = generator.integers(256, size=(23, 3072), dtype=np.uint8)
    labels, names = generator.integers(10, size=23).tolist(), [f"class {number}" for number in range(10)]
    batches = {f"data_batch_{number}": slice(4 * number - 4, 4 * number) for number in range(1, 6)}
    *train, test = [
        write_pickle(folder / name, {"data": pixels[part], "labels": labels[part]})
        for name, part in {**batches, "test_batch": slice(20, 23)}.items()
    ]
    meta = write_pickle(folder / "batches.meta", {"label_names": names})
    archive = folder.parent / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, FOLDER)
    for name, value in {
        "train_list": train, "test_list": [test], "url": f"{file_server(folder.parent).url}/{archive.name}",
        "meta": {"filename": meta[0], "key": "label_names", "md5": meta[1]}, "tgz_md5": md5(archive),
    }.items():  # fmt: skip
        monkeypatch.setattr(datasets.CIFAR10, name, value)
    return TinyCifar(folder, pixels.reshape(23, 3, 32, 32), labels, names)


def test_images_labels_and_names_are_the_files(tiny):
    for train, part in ((True, slice(20)), (False, slice(20, 23))):
        images = load_dataset("cifar10", tiny.folder, train=train)
        assert tiny.is_in(images, train=train) and images.images.is_contiguous() and images.images.dtype == torch.uint8
        assert images.labels.tolist() == tiny.labels[part] and images.classes == tuple(tiny.names)
        assert (images.mean, images.std) == (DATASETS["cifar10"].mean, DATASETS["cifar10"].std)


def test_the_folder_may_be_given_or_hold_it_or_have_another_name_or_be_the_cache(tiny, tmp_path, monkeypatch):
    assert tiny.is_in(load_dataset("cifar10", tiny.folder.parent, train=False), train=False)
    renamed = tiny.folder.rename(tmp_path / "pictures")
    assert tiny.is_in(load_dataset("cifar10", renamed, train=False), train=False)
    monkeypatch.chdir(renamed)
    assert tiny.is_in(load_dataset("cifar10", ".", train=False), train=False)
    shutil.copytree(renamed, tmp_path / "data" / "cifar10" / FOLDER)
    assert tiny.is_in(load_dataset("cifar10", train=True), train=True)


def test_packed_batches_are_unpacked_into_the_cache(tiny, tmp_path):
    folder = tiny.folder.rename(tmp_path / "mirror")
    for path in list(folder.iterdir()):
        Path(f"{path}.xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    before = sorted(folder.iterdir())
    for _ in range(2):
        assert tiny.is_in(load_dataset("cifar10", folder, train=False), train=False)
    assert sorted(folder.iterdir()) == before

    shutil.rmtree(tmp_path / "data")
    (folder / "test_batch.xz").write_bytes(lzma.compress(b"another"))
    with pytest.raises(ValueError, match=rf"^{folder}/test_batch.xz, unpacked, has the md5 "):
        load_dataset("cifar10", folder, train=False)
    (folder / "test_batch.xz").unlink()
    with pytest.raises(FileNotFoundError, match=rf"^{folder}/test_batch is missing, and so is a compressed copy: get"):
        load_dataset("cifar10", folder, train=False)


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
    with pytest.raises(ValueError, match=rf"^{path} has the md5 {md5(path)}, expected {expected}: get it again, .*$"):
        load_dataset("cifar10", tiny.folder, train=True)
    assert not (tmp_path / "sprung").exists()


def test_a_download_leaves_the_files_and_nothing_else(tiny, tmp_path):
    root = tmp_path / "new" / "data"
    (root / FOLDER).mkdir(parents=True)
    (root / FOLDER / "data_batch_1").write_text("left by a killed process")
    assert tiny.is_in(load_dataset("cifar10", root, train=True, download=True), train=True)
    assert [path.name for path in root.iterdir()] == [FOLDER]
    assert sorted(os.listdir(root / FOLDER)) == sorted(os.listdir(tiny.folder))


# batches


def random_images(count: int) -> Tensor:
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def images() -> ImageSet:
    """Random images, each of a class of its own, so that a label tells which image it is."""
    return ImageSet(random_images(COUNT), torch.arange(COUNT), tuple(str(number) for number in range(COUNT)))


def batches_of(images: ImageSet, *, batch_size: int = BATCH, seed: int = 1, **options) -> TrainingBatches:
    return TrainingBatches(images, batch_size=batch_size, seed=seed, device="cpu", **options)


def offsets_and_flips(crops: list[tuple[int, int, bool]]) -> tuple[Tensor, Tensor]:
    return torch.tensor([crop[:2] for crop in crops]), torch.tensor([crop[2] for crop in crops])


def test_every_crop_and_flip_is_torchvisions_to_the_bit():
    functional = pytest.importorskip("torchvision.transforms.functional")
    images = random_images(len(EVERY_CROP))
    expected = []
    for image, (top, left, flip) in zip(images, EVERY_CROP, strict=True):
        image = functional.crop(functional.pad(functional.to_pil_image(image), 4), top, left, 32, 32)
        image = functional.hflip(image) if flip else image
        expected.append(functional.normalize(functional.to_tensor(image), MEAN_10, STD_10))
    crops = crop_and_flip(images, *offsets_and_flips(EVERY_CROP))
    assert torch.equal(normalise(crops, MEAN_10, STD_10), torch.stack(expected))


def test_an_image_of_other_size_and_padding_by_hand():
    image = torch.arange(1, 7, dtype=torch.uint8).view(1, 1, 2, 3)
    corners, flips = offsets_and_flips([(0, 0, False), (2, 2, False), (1, 1, True), (0, 2, True)])
    crops = crop_and_flip(image.expand(4, 1, 2, 3), corners, flips, padding=1)
    assert crops[:, 0].tolist() == [
        [[0, 0, 0], [0, 1, 2]],
        [[5, 6, 0], [0, 0, 0]],
        [[3, 2, 1], [6, 5, 4]],
        [[0, 0, 0], [0, 3, 2]],
    ]


@pytest.mark.parametrize(("seed", "iteration"), [(0, 0), (1, 4), (1, 13), (2**40, 5)])
def test_batches_are_what_the_documentation_says(images, seed, iteration):
    epoch, place = divmod(iteration, 5)
    generator = torch.Generator()
    generator.manual_seed(int(np.random.SeedSequence(seed, spawn_key=(epoch,)).generate_state(1)[0]))
    order = torch.randperm(COUNT, generator=generator)
    offsets = torch.randint(9, (COUNT, 2), generator=generator)
    flips = torch.randint(2, (COUNT,), generator=generator) == 1
    part = slice(place * BATCH, (place + 1) * BATCH)
    crops = crop_and_flip(images.images[order[part]], offsets[part], flips[part])
    torch.manual_seed(99)  # which changes nothing
    batches = batches_of(images, seed=seed)
    batches.batch(7)  # nor does another batch
    pixels, labels, count = batches.batch(iteration)
    assert torch.equal(pixels, normalise(crops, MEAN_10, STD_10))
    assert torch.equal(labels, order[part]) and count == len(order[part])


@pytest.mark.parametrize("world_size", [2, 7])
def test_ranks_parts_interleave_to_the_whole_batch(images, world_size):
    whole = batches_of(images)
    ranks = [batches_of(images, ranks=Ranks(rank, world_size)) for rank in range(world_size)]
    for iteration in (0, 4, 6, 9):
        pixels, labels, count = whole.batch(iteration)
        joined, joined_labels = torch.full_like(pixels, torch.nan), torch.full_like(labels, -1)
        for rank, batches in enumerate(ranks):
            joined[rank::world_size], joined_labels[rank::world_size], own_count = batches.batch(iteration)
            assert own_count == count
        assert torch.equal(joined, pixels) and torch.equal(joined_labels, labels)


def test_evaluation_shows_every_image_in_order(images):
    parts = list(evaluation_batches(images, batch_size=128, device="cpu"))
    assert [len(labels) for _, labels in parts] == [128, 128, 44]
    assert torch.equal(torch.cat([labels for _, labels in parts]), images.labels)
    assert torch.equal(torch.cat([pixels for pixels, _ in parts]), normalise(images.images, MEAN_10, STD_10))
    low, _ = next(evaluation_batches(images, batch_size=8, device="cpu", channels_last=True))
    assert low.is_contiguous(memory_format=torch.channels_last) and torch.equal(low, parts[0][0][:8])


def test_the_sets_own_mean_and_std_are_used(images):
    other = dataclasses.replace(images, mean=DATASETS["cifar100"].mean, std=DATASETS["cifar100"].std)
    expected = normalise(images.images, torch.tensor(other.mean), torch.tensor(other.std))
    assert torch.equal(next(evaluation_batches(other, batch_size=COUNT, device="cpu"))[0], expected)
    pixels, labels, _ = batches_of(other, batch_size=COUNT, augment=False).batch(0)
    assert torch.equal(pixels, expected[labels])
