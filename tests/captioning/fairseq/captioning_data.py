"""Corpora for captioning: made-up regions with sentences that name them, and some of Flickr8k's pictures."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np
from PIL import Image

from rskip.captioning.captions import CaptionedImage, count_words, write_dictionary, write_split
from rskip.captioning.features import Features, FeatureWriter

THINGS = ("dog", "cat", "ball", "tree", "boat", "house")
SENTENCES = ("a {} and a {}", "there is a {} with a {}", "a {} beside a {}", "one {} near one {}", "the {} and the {}")


def write_corpus(folder: Path, *, dim: int = 8) -> None:
    """Writes data/ and features/: 30 images of two to four regions, two of them things that the captions name."""
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(len(THINGS), dim))
    pairs = [(first, second) for first in range(6) for second in range(6) if first != second]
    (folder / "data").mkdir(parents=True)
    images, features = [], []
    for number, pair in enumerate(pairs):
        name = f"{number}.jpg"
        images.append(CaptionedImage.of_captions(name, (each.format(*(THINGS[i] for i in pair)) for each in SENTENCES)))
        regions = np.concatenate([vectors[list(pair)], draw.normal(size=(number % 3, dim)) / 4])
        regions[:2] += [[2.0] * dim, [-2.0] * dim]  # which comes first
        features.append((name, "", Features(regions.astype(np.float32), None)))
    for split, part in (("train", images[:24]), ("valid", images[24:]), ("test", images[24:])):
        write_split(folder / "data", split, part)
    write_dictionary(folder / "data", count_words(images), min_count=1)
    with FeatureWriter(folder / "features", {"backbone": "toy", "dim": dim, "dtype": "float32"}) as writer:
        writer.add(features)
        writer.finish()


def write_flickr8k_corpus(folder: Path, flickr8k: Path, *, count: int) -> None:
    """Writes data/ and features/ of the first pictures, which are both train and valid.

    Features are a drawn projection of the pixels of 4 x 4 cells of the picture in 32 x 32 pixels: enough to tell the
    pictures from each other, and no network is needed.
    """
    captions = defaultdict(list)
    with gzip.open(flickr8k / "Flickr8k.token.txt.gz", "rt", encoding="utf-8") as lines:
        for key, _, caption in (line.rstrip("\n").partition("\t") for line in lines):
            captions[key.partition("#")[0]].append(caption)
    paths = sorted((flickr8k / "images").iterdir())[:count]
    images = [CaptionedImage.of_captions(path.name, captions[path.name]) for path in paths]
    (folder / "data").mkdir(parents=True)
    for split in ("train", "valid"):
        write_split(folder / "data", split, images)
    write_dictionary(folder / "data", count_words(images), min_count=1)
    projection = np.random.default_rng(0).normal(size=(8 * 8 * 3, 64)) / 14
    with FeatureWriter(folder / "features", {"backbone": "pixels", "dim": 64, "dtype": "float32"}) as writer:
        writer.add((path.name, "", Features(_cells(path) @ projection, (4, 4))) for path in paths)
        writer.finish()


def _cells(path: Path) -> np.ndarray:
    """The pixels of 16 cells, (16, 192), from -1 to 1."""
    pixels = np.asarray(Image.open(path).convert("RGB").resize((32, 32)), dtype=np.float32) / 127.5 - 1
    return pixels.reshape(4, 8, 4, 8, 3).transpose(0, 2, 1, 3, 4).reshape(16, -1)
