"""Speed of extracting image features with EfficientNet-Lite0: the network's memory formats, and full extractions.

The images are generated JPEGs of 500 x 375 pixels. The network runs on a batch of 16 in PyTorch's contiguous format and
in channels_last, which rskip uses. A full extraction reads, decodes, computes and writes, with one or two threads for
decoding. The two sides alternate in one process; the ratio is the median over rounds. Prints tables and appends one
JSON line to study/results/benchmarks/caption_features.jsonl.

    python benchmarks/caption_features.py [--rounds 7] [--images 64]
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring.pairs import compare
from measuring.record import append_record, benchmark_parser
from PIL import Image

from rskip.captioning.backbones import LITE0, Backbone, load_backbone
from rskip.captioning.extraction import extract_features
from rskip.captioning.options import ImageBatchSettings

BATCH = 16


def draw_images(folder: Path, count: int) -> list[tuple[str, Path]]:
    """JPEGs of smooth colours with noise; the files are about as large as photographs."""
    random = np.random.default_rng(1)
    images = []
    for number in range(count):
        colours = Image.fromarray(random.integers(0, 256, size=(12, 16, 3), dtype=np.uint8))
        pixels = np.asarray(colours.resize((500, 375), Image.Resampling.BICUBIC)) + random.normal(0, 6, (375, 500, 3))
        path = folder / f"{number:04d}.jpg"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        images.append((path.name, path))
    return images


def network_alone(backbone: Backbone, rounds: int) -> dict[str, Any]:
    """Compares contiguous with channels_last on one batch."""
    batch = torch.randn(BATCH, 3, 224, 224)
    contiguous = load_backbone(LITE0).network.to(memory_format=torch.contiguous_format)
    last = batch.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        return compare(lambda: contiguous(batch), lambda: backbone.network(last), rounds)


def whole_extraction(
    backbone: Backbone, images: list[tuple[str, Path]], folder: Path, rounds: int
) -> dict[str, Any]:
    """Compares one decoding thread with two."""

    def extraction(readers: int) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as store:
            settings = ImageBatchSettings(batch_size=BATCH, readers=readers)
            extract_features(images, backbone, Path(store), settings=settings)

    return compare(lambda: extraction(1), lambda: extraction(2), rounds)


def main() -> None:
    parser = benchmark_parser(__doc__, "caption_features")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", "--pictures", type=int, default=64)
    args = parser.parse_args()
    try:
        backbone = load_backbone(LITE0)
    except ValueError as error:
        print(f"not measured: {error}")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        images = draw_images(folder, args.images)
        measured = {
            "network, contiguous -> channels_last": (BATCH, network_alone(backbone, args.rounds)),
            "extraction, 1 thread decodes -> 2": (
                args.images, whole_extraction(backbone, images, folder, max(3, args.rounds // 2)),
            ),
        }  # fmt: skip
    rows = [
        {
            "part": part,
            "before_per_second": round(1000 * count / times["before_ms"], 1),
            "now_per_second": round(1000 * count / times["now_ms"], 1),
            "ratio": times["ratio"],
        }
        for part, (count, times) in measured.items()
    ]
    print("| part | before, images/s | now, images/s | now / before |\n|---|---|---|---|")
    for row in rows:
        print("| {part} | {before_per_second} | {now_per_second} | {ratio:.2f} |".format(**row))
    append_record(args.output, "caption_features", {"threads": torch.get_num_threads(), "rows": rows})


if __name__ == "__main__":
    main()
