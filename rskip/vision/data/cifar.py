"""Finds, downloads and verifies CIFAR-10 and CIFAR-100, and reads them into memory.

torchvision has the addresses, the checksums and the format. This module adds error messages that name the wrong file,
and atomic downloads.
"""

from __future__ import annotations

import os
import shutil
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rskip.extras import extra
from rskip.files.archives import extract
from rskip.files.cache import cache_folder, expanded_path, file_or_packed, unpack, unpacking_folder
from rskip.files.checksum import file_difference
from rskip.files.download import download as download_file
from rskip.files.lock import one_at_a_time
from rskip.vision.data.loader import ImageSet
from rskip.vision.datasets import DATASETS

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

_TORCHVISION = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}  # its classes


def load_cifar(
    name: str, root: str | os.PathLike[str] | None = None, *, train: bool, download: bool = False
) -> ImageSet:
    """The training or the test images of CIFAR-10 or CIFAR-100.

    Before a file is unpickled, the official MD5 checksums of all files are verified.

    :param name: cifar10 or cifar100.
    :param root: the folder of the batches (`cifar-10-batches-py`, `cifar-100-python`), or its parent; None: cifar10 or
        cifar100 in $RSKIP_DATA (~/.cache/rskip/data). Packed batches (NAME.xz, NAME.gz) are unpacked into a folder
        there.
    :param train: whether to load the 50,000 training images instead of the 10,000 test images.
    :param download: download the dataset if it is missing or damaged. An archive with torchvision's name next to the
        folder is used instead of a download. A downloaded archive is removed after unpacking. Other processes that
        need the folder wait.
    :raises FileNotFoundError: the folder is missing.
    :raises ValueError: a file is missing or damaged, or torchvision is missing.
    :raises OSError: the download failed, or the disk is full.
    """
    dataset = _torchvision_class(name)
    folder = _batches_folder(cache_folder() / name if root is None else Path(root), dataset)
    folder = _unpacked(folder, dataset, cache_folder() / name)
    try:
        _verify(folder, dataset)
    except (FileNotFoundError, ValueError):
        if not download:
            raise
        _fetch(folder, dataset)
        _verify(folder, dataset)
    here = type(dataset.__name__, (dataset,), {"base_folder": folder.name})  # the folder may have any name
    with warnings.catch_warnings():
        # numpy 2.4.0 to 2.4.4 warn about such old pickles
        warnings.filterwarnings("ignore", message=r"dtype\(\): align")
        content: CIFAR10 = here(folder.parent, train=train)
    return ImageSet(
        images=torch.from_numpy(content.data).permute(0, 3, 1, 2).contiguous(),  # torchvision has N, H, W, C
        labels=torch.tensor(content.targets),
        classes=tuple(content.classes),
        mean=DATASETS[name].mean,
        std=DATASETS[name].std,
    )


def checksums(name: str) -> dict[str, str]:
    """The official MD5 checksum of every file, by name."""
    return dict(_files(_torchvision_class(name)))


def _torchvision_class(name: str) -> type[CIFAR10]:
    with extra("vision", what=name):
        from torchvision import datasets
    found: type[CIFAR10] = getattr(datasets, _TORCHVISION[name])
    return found


def _files(dataset: type[CIFAR10]) -> list[tuple[str, str]]:
    """The name and official MD5 checksum of every file that torchvision reads."""
    batches = [(name, md5) for name, md5 in (*dataset.train_list, *dataset.test_list)]
    return [*batches, (dataset.meta["filename"], dataset.meta["md5"])]


def _batches_folder(root: Path, dataset: type[CIFAR10]) -> Path:
    """`root` if it is the folder of the batches, or else the path of that folder in `root`."""
    root = expanded_path(root, "the folder of images").absolute()
    if root.name == dataset.base_folder or any(file_or_packed(root, name) for name, _ in _files(dataset)):
        return root
    return root / dataset.base_folder


def _unpacked(folder: Path, dataset: type[CIFAR10], cache: Path) -> Path:
    """The folder, or if its files are packed, a folder of the cache with their content."""
    found = {name: file_or_packed(folder, name) for name, _ in _files(dataset)}
    if any(path is not None and path.name == name for name, path in found.items()) or not any(found.values()):
        return folder
    unpacked = unpacking_folder(cache, folder)
    for name, md5 in _files(dataset):
        if (packed := found[name]) is None:
            missing = f"{folder / name} is missing, and so is a compressed copy"
            raise FileNotFoundError(f"{missing}: get it from {dataset.url}")
        unpack(packed, unpacked / name, url=dataset.url, md5=md5)
    return unpacked


def _verify(folder: Path, dataset: type[CIFAR10]) -> None:
    """Checks that the folder has exactly the files that the dataset's authors published."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no {dataset.__name__} in {folder.parent}: expected the folder {folder}; give --download, or --data "
            f"FOLDER that holds {folder.name}, unpacked from {dataset.url} (in Python download=True)"
        )
    again = f"get it again, from {dataset.url} or with --download of `rskip vision` and `rskip analyse`"
    for name, expected in _files(dataset):
        if wrong := file_difference(folder / name, md5=expected):
            raise ValueError(f"{folder / name} {wrong}: {again}")


def _fetch(folder: Path, dataset: type[CIFAR10]) -> None:
    """Downloads and unpacks the dataset. Its files are moved to `folder` after all of them were unpacked."""
    parent = folder.parent
    members = [f"{dataset.base_folder}/{name}" for name, _ in _files(dataset)]
    with one_at_a_time(folder):
        with suppress(FileNotFoundError, ValueError):
            _verify(folder, dataset)
            return  # another process was faster
        archive = parent / dataset.filename
        present = archive.exists()
        otherwise = f"put the archive {archive.name} into {parent}"
        download_file(dataset.url, archive, md5=dataset.tgz_md5, otherwise=otherwise)
        unpacking = folder.with_name(f".{folder.name}.unpacking")
        try:
            shutil.rmtree(unpacking, ignore_errors=True)  # leftovers of a killed process
            unpacked = extract(archive, members, unpacking)
            folder.mkdir(exist_ok=True)
            for path in unpacked.values():
                path.replace(folder / path.name)
        finally:
            shutil.rmtree(unpacking, ignore_errors=True)
        if not present:
            archive.unlink()
