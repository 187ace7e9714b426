"""Corpora for captioning: made-up regions with sentences that name them, and some of Flickr8k's pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
        for each in features:
            writer.add(*each)
        writer.finish()
