"""Loads the images of a run, downloads missing ones, and describes them for the run's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rskip.files.cache import expanded_path
from rskip.settings.errors import SettingError
from rskip.vision.data.cifar import load_cifar
from rskip.vision.data.labelled_files import find_labelled_files
from rskip.vision.data.loader import ImageSet
from rskip.vision.data.own_images import load_own_images
from rskip.vision.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class RunImages:
    """The images that a run is scored on, and a description of all its images.

    :param test: the test images; without test images of your own, the validation images.
    :param split: name of the split in `test`: "test", or "valid" for your own images.
    :param described: description for the run's record.
    """

    test: ImageSet
    classes: tuple[str, ...]
    size: int | None = None
    split: str = "test"
    described: dict[str, Any]


def ensure_images(settings: TrainingSettings, *, mirror: str | None) -> RunImages:
    """The images of a run's settings, CIFAR's or your own.

    :raises FileNotFoundError, ValueError: as `ensure_cifar` or `load_own_images`.
    """
    if settings.data is None:
        images = ensure_cifar(settings.dataset, mirror=mirror)
        described = describe_images(settings.dataset, images)
        return RunImages(test=images["test"], classes=images["train"].classes, described=described)
    preact = settings.model == "preact_resnet"
    own = load_own_images(find_labelled_files(Path(settings.data)), size=settings.size, preact=preact, scored=True)
    about = own.description
    described = {
        "dataset": about.name,
        "images": dict(about.counts),
        "classes": len(own.train.classes),
        "scored_on": own.split,
        "sha256": dict(about.sha256),
    }
    return RunImages(
        test=own.held_out, classes=own.train.classes, size=about.size, split=own.split, described=described
    )


def ensure_cifar(dataset: str, *, mirror: str | None) -> dict[str, ImageSet]:
    """The images of both splits, "train" and "test".

    :param mirror: the parent of the dataset's folder, such as of cifar-10-batches-py; None: the cache, to which a
        missing dataset is downloaded.
    :raises FileNotFoundError: `mirror` does not contain the dataset.
    :raises SettingError: the mirror is not a folder.
    :raises ValueError: a file is damaged.
    """
    folder = image_folder(mirror)
    if folder is not None and not folder.is_dir():
        raise SettingError.of_value("mirror", mirror, f"a folder that holds {dataset}, or none")
    return {
        split: load_cifar(dataset, folder, train=split == "train", download=mirror is None)
        for split in ("train", "test")
    }


def image_folder(mirror: str | None) -> Path | None:
    """The mirror as a path; None: the cache.

    :raises ValueError: the mirror is an address, or is in the home of an unknown user.
    """
    if mirror is not None and "://" in mirror:
        raise SettingError.of_value("mirror", mirror, "a folder, such as one with cifar-10-batches-py in it")
    return expanded_path(mirror, "mirror") if mirror is not None else None


def describe_images(dataset: str, images: Mapping[str, ImageSet]) -> dict[str, Any]:
    """Numbers of images, and the MD5 checksum of every file of the dataset."""
    from torchvision import datasets

    published = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[dataset]
    files = [*published.train_list, *published.test_list, [published.meta["filename"], published.meta["md5"]]]
    return {
        "dataset": dataset,
        "images": {split: len(each.labels) for split, each in images.items()},
        "classes": len(images["train"].classes),
        "md5": dict(sorted(files)),
    }
