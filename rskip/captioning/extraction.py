"""Extracts features of a folder of images into a store, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rskip.captioning.backbones import Backbone
from rskip.captioning.features import FeatureWriter
from rskip.captioning.options import ImageBatchSettings
from rskip.files.checksum import sha256_file
from rskip.machine.progress import Progress


@dataclass
class Extraction:
    """The progress of an extraction.

    done: number of added images; kept: of images already there; total: of all images. seconds: time for adding.
    failed: images that could not be read, with one line per error.
    """

    total: int
    done: int = 0
    kept: int = 0
    seconds: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)


def extract_features(
    images: Sequence[tuple[str, Path]],
    backbone: Backbone,
    output: Path,
    *,
    settings: ImageBatchSettings | None = None,
    quiet: bool = False,
) -> Extraction:
    """Makes a store of the features of images, or adds the missing ones to an existing store.

    Skips images that can't be read and images whose features are not finite.

    :param images: the name of each image in the store, and its file.
    :param quiet: show no progress.
    :raises ValueError: no image can be read, the store was made with other settings, or an image has changed.
    """
    settings = ImageBatchSettings() if settings is None else settings
    result = Extraction(total=len(images))
    progress = Progress("features", total=len(images), unit=" images", log=30, shown=not quiet)
    with FeatureWriter(output, backbone.description) as writer, progress as bar:
        missing = [(name, path) for name, path in images if name not in writer.images]
        for name, path in images:
            if name in writer.images and sha256_file(path) != writer.images[name].sha256:
                raise ValueError(f"{path} has changed since {output} was made: choose another output")
        result.kept = len(images) - len(missing)
        started = time.perf_counter()
        size = settings.batch_size
        batches = [missing[start : start + size] for start in range(0, len(missing), size)]
        computed = backbone.read_ahead([path for _, path in batch] for batch in batches)
        for batch, features in zip(batches, computed, strict=True):
            for (name, path), found in zip(batch, features, strict=True):
                problem = str(found) if isinstance(found, Exception) else writer.add(name, sha256_file(path), found)
                if problem:
                    result.failed[name] = problem
                else:
                    result.done += 1
            result.seconds = time.perf_counter() - started
            bar.update(result.done + result.kept + len(result.failed) - bar.n)
        if not writer.images:
            raise ValueError(f"none of {len(images):,} images can be read: {next(iter(result.failed.values()))}")
        writer.finish()
    return result
