"""Loads the images of a run, downloads missing ones, and describes them for the run's record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rskip.files.cache import expanded_path
from rskip.settings.errors import SettingError, shown
from rskip.vision.data.labelled_files import find_labelled_files
from rskip.vision.data.loader import ImageSet
from rskip.vision.data.own_images import load_own_images
from rskip.vision.datasets import DATASETS, checksums, load_dataset
from rskip.vision.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class RunImages:
    """The images that a run is scored on, and a description of all its images.

    :param test: the test images; without test images of your own, the validation images.
    :param split: name of the split in `test`: "test", or "valid" for your own images.
    :param described: description for the run's record.
    """

    test: ImageSet
    size: int | None = None
    split: str = "test"
    described: dict[str, Any]


def ensure_images(settings: TrainingSettings, *, mirror: str | None) -> RunImages:
    """The images of a run's settings, a dataset's or your own.

    :raises FileNotFoundError, ValueError: as `ensure_dataset` or `load_own_images`.
    """
    if settings.data is None:
        images = ensure_dataset(settings.dataset, mirror=mirror)
        described = {
            "dataset": settings.dataset,
            "images": {split: len(each) for split, each in images.items()},
            "classes": len(images["train"].classes),
            "md5": dict(sorted(checksums(settings.dataset).items())),
        }
        return RunImages(test=images["test"], described=described)
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
    return RunImages(test=own.held_out, size=about.size, split=own.split, described=described)


def ensure_dataset(dataset: str, *, mirror: str | None) -> dict[str, ImageSet]:
    """The images of both splits, "train" and "test".

    :param mirror: as for `image_folder`; None: the cache, to which a missing dataset is downloaded.
    :raises FileNotFoundError: a file is missing.
    :raises ValueError: a file is damaged.
    """
    folder = image_folder(dataset, mirror)
    return {
        split: load_dataset(dataset, folder, train=split == "train", download=mirror is None)
        for split in ("train", "test")
    }


def check_mirror(dataset: str, mirror: str | None) -> None:
    """:raises SettingError: the mirror, if there is one, does not hold the dataset."""
    folder = image_folder(dataset, mirror)
    named = DATASETS[dataset]
    if folder is None or named.is_in(folder):
        return
    problem = f"does not hold {dataset}" if folder.is_dir() else "is not a folder"
    files = f"{named.first_file} and the other files (also as .xz or .gz)"
    expected = f"the folder with {named.folder} in it, or with {files}"
    raise SettingError("mirror", f"is {shown(mirror)}, which {problem}", expected=expected)


def image_folder(dataset: str, mirror: str | None) -> Path | None:
    """The folder of the images in a mirror; None: the cache.

    :param mirror: the folder of the batches, its parent, or a folder with `dataset` in it that is one of these.
    :raises ValueError: the mirror is an address, or is in the home of an unknown user.
    """
    if mirror is None:
        return None
    named = DATASETS[dataset]
    if "://" in mirror:
        raise SettingError.of_value("mirror", mirror, f"a folder, such as one with {named.folder} in it")
    folder = expanded_path(mirror, "mirror")
    return folder / dataset if not named.is_in(folder) and named.is_in(folder / dataset) else folder
