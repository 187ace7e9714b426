"""Training speed of captioning models on CPU with fairseq's Trainer: images of 7 x 7 features with five captions each.

All systems alternate in one process. A ratio compares times of the same round; the median over rounds is reported.
Prints a table and appends one JSON line to study/results/benchmarks/captioning_train_speed.jsonl.

    python benchmarks/captioning_train_speed.py [--rounds 7] [--images 16]
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import numpy as np
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from measuring.fairseq_training import FAIRSEQ_LOSS, OUR_LOSS, System, make_dictionary, time_steps
from measuring.record import append_record, benchmark_parser

import rskip.fairseq_plugin  # noqa: F401
from rskip.captioning.captions import CaptionedImage
from rskip.captioning.fairseq.task import CaptionExamples, CaptioningTask
from rskip.captioning.features import Features

SIZES = [
    "--encoder-embed-dim", "256", "--encoder-ffn-embed-dim", "512", "--encoder-layers", "2", "--decoder-layers", "2",
    "--encoder-attention-heads", "4", "--decoder-attention-heads", "4", "--share-decoder-input-output-embed",
    "--dropout", "0.3",
]  # fmt: skip
SYSTEMS = [
    System("1xskip+ln, float32, fairseq's loss", "captioning_transformer_skip_ln_tiny", FAIRSEQ_LOSS),
    System("1xskip+ln, bf16, fairseq's loss", "captioning_transformer_skip_ln_tiny", FAIRSEQ_LOSS, ("--bf16",)),
    System("1xskip+ln, bf16, our loss", "captioning_transformer_skip_ln_tiny", OUR_LOSS, ("--bf16",)),
    System("2rskip+ln, bf16, our loss", "captioning_transformer_rskip_ln_tiny", OUR_LOSS, ("--bf16",)),
    System(
        "1xskip+ln, bf16, self-critical, 5 samples", "captioning_transformer_skip_ln_tiny", "self_critical", ("--bf16",)
    ),
]
VOCABULARY, WORDS, DIM = 1_130, 12, 1_280


class DrawnFeatures:
    """Replaces a feature store: random features of a 7 x 7 grid, with EfficientNet-Lite0's share of zeros."""

    dim = DIM
    description = {"backbone": "drawn", "dim": DIM, "dtype": "float16"}  # noqa: RUF012

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> Features:
        draw = np.random.default_rng(sum(name.encode()))
        return Features(np.maximum(draw.normal(-1.2, size=(49, DIM)), 0).astype(np.float16), (7, 7))


def build_trainer(system: System, dictionary: Dictionary, examples: CaptionExamples) -> Trainer:
    """fairseq's Trainer, built as in fairseq-train."""
    smoothing = [] if system.criterion == "self_critical" else ["--label-smoothing", "0.1"]
    flags = [
        "unused", "--task", "captioning", "--features", "unused", "--arch", system.arch, *SIZES,
        "--criterion", system.criterion, *smoothing, "--optimizer", "adam", "--lr", "1e-4", "--cpu",
        "--max-caption-tokens", "20", *system.flags,
    ]  # fmt: skip
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), flags))
    task = CaptioningTask(cfg.task, dictionary, examples.features)
    task.datasets["train"] = examples
    torch.manual_seed(1)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


def main() -> None:
    parser = benchmark_parser(__doc__, "captioning_train_speed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=int, default=16)
    args = parser.parse_args()

    dictionary = make_dictionary(VOCABULARY)
    draw = np.random.default_rng(1)
    images = []
    for number, captions in enumerate(draw.integers(0, 1_000, (args.images, 5, WORDS))):
        tokens = tuple(" ".join(f"word{word}" for word in caption) for caption in captions)
        images.append(CaptionedImage(f"{number}.jpg", tokens, tokens))
    features: Any = DrawnFeatures()
    examples = CaptionExamples(images, features, dictionary, shuffled=False)
    batches = [examples.collater(list(range(len(examples))))]
    tokens = batches[0]["ntokens"]
    trainers = [build_trainer(system, dictionary, examples) for system in SYSTEMS]
    for trainer in trainers:
        time_steps(trainer, batches)  # warm-up
    times: list[list[float]] = [[] for _ in SYSTEMS]
    for _ in range(args.rounds):
        for column, trainer in zip(times, trainers, strict=True):
            column.append(time_steps(trainer, batches))

    rows = []
    for system, column in zip(SYSTEMS, times, strict=True):
        ratio = statistics.median(base / own for base, own in zip(times[0], column, strict=True))
        speed = tokens / statistics.median(column)
        captions = 5 * args.images / statistics.median(column)
        rows.append({"system": system.name, "tokens_per_second": round(speed), "ratio": round(ratio, 2)})
        rows[-1]["captions_per_second"] = round(captions, 1)
    print("| system | caption tokens/s | captions/s | × float32 |\n|---|---|---|---|")
    for row in rows:
        print("| {system} | {tokens_per_second:,} | {captions_per_second} | {ratio:.2f} |".format(**row))
    values = {"rounds": args.rounds, "images": args.images, "rows": rows}
    append_record(args.output, "captioning_train_speed", values)
    print(json.dumps({"ratio_bf16_our_loss": rows[2]["ratio"]}))


if __name__ == "__main__":
    main()
