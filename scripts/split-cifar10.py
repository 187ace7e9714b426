#!/usr/bin/env python3
"""Writes CIFAR-10's 50,000 training images as an .npz file of 45,000 training and 5,000 validation images.

The validation images are the last 5,000, so no test image is used. `rskip vision train --data FILE.npz` reads the file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from rskip.vision.data import load_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder that holds cifar-10-batches-py, or the batches themselves")
    parser.add_argument("output", type=Path, help=".npz file to write")
    arguments = parser.parse_args()
    images = load_dataset("cifar10", arguments.folder, train=True)
    pixels, labels = images.images.permute(0, 2, 3, 1).numpy(), images.labels.numpy()
    np.savez(
        arguments.output,
        train_images=pixels[:45_000],
        train_labels=labels[:45_000],
        val_images=pixels[45_000:],
        val_labels=labels[45_000:],
        classes=np.array(images.classes),
    )


if __name__ == "__main__":
    main()
