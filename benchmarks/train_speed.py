"""Training speed on CPU: fairseq's own transformer against ours, through fairseq's Trainer, on the same batches.

All systems take turns, round by round, in one process; the ratio is that of a round's times, and its median is
reported. Prints a table and appends one JSON line to results/train_speed.jsonl.

    python benchmarks/train_speed.py [--rounds 7] [--steps 3] [--tokens 4096]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from measuring.record import append_record

import rskip.fairseq_plugin  # noqa: F401

SIZES = [
    "--encoder-embed-dim", "128", "--encoder-ffn-embed-dim", "256", "--encoder-layers", "4", "--decoder-layers", "4",
    "--encoder-attention-heads", "4", "--decoder-attention-heads", "4", "--share-all-embeddings", "--dropout", "0.3",
]  # fmt: skip
FAIRSEQ_LOSS = "label_smoothed_cross_entropy"
OUR_LOSS = "rskip_label_smoothed_cross_entropy"
VOCABULARY = 10_000


@dataclass(frozen=True)
class System:
    """One way to train the same Transformer."""

    name: str
    arch: str
    criterion: str
    bf16: bool


SYSTEMS = [
    System("fairseq transformer, float32", "transformer", FAIRSEQ_LOSS, False),
    System("ours 1xskip+ln, float32", "transformer_skip_ln_tiny", FAIRSEQ_LOSS, False),
    System("ours 1xskip+ln, float32, our loss", "transformer_skip_ln_tiny", OUR_LOSS, False),
    System("ours 1xskip+ln, bf16", "transformer_skip_ln_tiny", FAIRSEQ_LOSS, True),
    System("ours 1xskip+ln, bf16, our loss", "transformer_skip_ln_tiny", OUR_LOSS, True),
    System("ours 2rskip+ln, bf16, our loss", "transformer_rskip_ln_tiny", OUR_LOSS, True),
]


def build_trainer(system: System, dictionary: Dictionary) -> Trainer:
    """fairseq's Trainer as fairseq-train would build it."""
    flags = [
        "unused", "--task", "translation", "--source-lang", "en", "--target-lang", "de", "--arch", system.arch, *SIZES,
        "--criterion", system.criterion, "--label-smoothing", "0.1", "--optimizer", "adam", "--lr", "1e-4", "--cpu",
        *(["--bf16"] if system.bf16 else []),
    ]  # fmt: skip
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), flags))
    task = tasks.TASK_REGISTRY["translation"](cfg.task, dictionary, dictionary)
    torch.manual_seed(1)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


def make_batches(count: int, tokens: int, *, padding: int, end: int) -> list[dict[str, Any]]:
    """Batches of random tokens with the lengths of image captions (8 to 24), of at most `tokens` padded tokens."""
    generator = torch.Generator().manual_seed(1)
    batches = []
    for index in range(count):
        length = 12 + 4 * (index % 3)  # fairseq batches sentences of like lengths
        rows = tokens // length

        def sentences(left: bool, rows: int = rows, length: int = length) -> torch.Tensor:
            words = torch.randint(4, VOCABULARY, (rows, length), generator=generator)
            for row, missing in enumerate(torch.randint(0, 4, (rows,), generator=generator).tolist()):
                if missing and left:
                    words[row, :missing] = padding
                elif missing:
                    words[row, -missing:] = padding
            return words

        source, target = sentences(left=True), sentences(left=False)
        prefix = target.roll(1, 1)
        prefix[:, 0] = end
        batches.append(
            {
                "id": torch.arange(rows),
                "nsentences": rows,
                "ntokens": int(target.ne(padding).sum()),
                "net_input": {
                    "src_tokens": source,
                    "src_lengths": source.ne(padding).sum(1),
                    "prev_output_tokens": prefix,
                },
                "target": target,
            }
        )
    return batches


def time_steps(trainer: Trainer, batches: list[dict[str, Any]]) -> float:
    """Seconds for one update on each batch."""
    start = time.perf_counter()
    for batch in batches:
        with metrics.aggregate("train_inner"):
            trainer.train_step([batch])
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--output", type=Path, default=Path("results/train_speed.jsonl"))
    args = parser.parse_args()

    dictionary = Dictionary()
    for index in range(VOCABULARY - len(dictionary)):
        dictionary.add_symbol(f"word{index}")
    batches = make_batches(args.steps, args.tokens, padding=dictionary.pad(), end=dictionary.eos())
    tokens = sum(batch["ntokens"] for batch in batches)
    trainers = [build_trainer(system, dictionary) for system in SYSTEMS]
    for trainer in trainers:
        time_steps(trainer, batches)  # warm-up
    times: list[list[float]] = [[] for _ in SYSTEMS]
    for round_number in range(args.rounds):
        for column, trainer in zip(times, trainers, strict=True):
            column.append(time_steps(trainer, batches))
        print(f"round {round_number + 1} of {args.rounds}", file=sys.stderr)

    rows = []
    for system, trainer, column in zip(SYSTEMS, trainers, times, strict=True):
        ratios = [base / own for base, own in zip(times[0], column, strict=True)]
        rows.append(
            {
                "system": system.name,
                "parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
                "tokens_per_second": round(tokens / statistics.median(column)),
                "ratio": round(statistics.median(ratios), 2),
                "ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
            }
        )
    print("| system | target tokens/s | × fairseq float32 (min to max) |\n|---|---|---|")
    for row in rows:
        low, high = row["ratio_range"]
        print(f"| {row['system']} | {row['tokens_per_second']:,} | {row['ratio']:.2f} ({low:.2f} to {high:.2f}) |")
    append_record(args.output, "train_speed", {"rounds": args.rounds, "target_tokens_a_round": tokens, "rows": rows})
    names = ("ratio_float32", "ratio_float32_our_loss", "ratio_bf16", "ratio_bf16_our_loss")
    print(json.dumps({name: row["ratio"] for name, row in zip(names, rows[1:5], strict=True)}))


if __name__ == "__main__":
    main()
