"""Training speed: fairseq's own transformer against ours, through fairseq's Trainer, on the same batches.

On a CPU it trains a tiny model on batches of image captions. With --device cuda it trains Transformer-base on longer
sentences, with unmodified fairseq in float16 and bfloat16 and with ours, and also measures the peak memory per update.
All systems alternate in one process. A ratio compares times of the same round; the median over rounds is reported.
Prints a table and appends one JSON line to study/results/benchmarks/train_speed.jsonl.

    python benchmarks/train_speed.py [--rounds 7] [--steps 3] [--tokens 4096] [--device cuda] [--compile-layers]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from measuring.gpu import named_device, peak_memory, synchronise, write_profile
from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max

import rskip.fairseq_plugin  # noqa: F401

FAIRSEQ_LOSS = "label_smoothed_cross_entropy"
OUR_LOSS = "rskip_label_smoothed_cross_entropy"


@dataclass(frozen=True)
class System:
    """One way to train the same Transformer. `flags` are flags of fairseq-train in addition to the workload's."""

    name: str
    arch: str
    criterion: str
    flags: tuple[str, ...] = ()
    optimizer: str = "adam"


@dataclass(frozen=True)
class Workload:
    """The systems, the model and the data of a benchmark.

    :param flags: the model's sizes and dropout.
    :param lengths: maximum lengths of sentences, which have up to three tokens fewer.
    """

    systems: list[System]
    flags: list[str]
    vocabulary: int
    lengths: tuple[int, ...]


CPU = Workload(
    systems=[
        System("fairseq transformer, float32", "transformer", FAIRSEQ_LOSS),
        System("ours 1xskip+ln, float32", "transformer_skip_ln_tiny", FAIRSEQ_LOSS),
        System("ours 1xskip+ln, float32, our loss", "transformer_skip_ln_tiny", OUR_LOSS),
        System("ours 1xskip+ln, bf16", "transformer_skip_ln_tiny", FAIRSEQ_LOSS, ("--bf16",)),
        System("ours 1xskip+ln, bf16, our loss", "transformer_skip_ln_tiny", OUR_LOSS, ("--bf16",)),
        System("ours 2rskip+ln, bf16, our loss", "transformer_rskip_ln_tiny", OUR_LOSS, ("--bf16",)),
    ],
    flags=[
        "--encoder-embed-dim", "128", "--encoder-ffn-embed-dim", "256", "--encoder-layers", "4",
        "--decoder-layers", "4", "--encoder-attention-heads", "4", "--decoder-attention-heads", "4", "--dropout", "0.3",
    ],
    vocabulary=10_000,
    lengths=(12, 16, 20),
)  # fmt: skip
GPU = Workload(
    systems=[
        System("fairseq transformer, fp16", "transformer", FAIRSEQ_LOSS, ("--fp16",)),
        System("fairseq transformer, bf16", "transformer", FAIRSEQ_LOSS, ("--bf16",)),
        System("ours 1xskip+ln, bf16, fairseq's Adam and loss", "transformer_skip_ln", FAIRSEQ_LOSS, ("--bf16",)),
        *(
            System(f"ours {name}, {precision}", f"transformer_{arch}", OUR_LOSS, (f"--{precision}",), "rskip_adam")
            for precision in ("fp16", "bf16")
            for name, arch in (("1xskip+ln", "skip_ln"), ("2rskip+ln", "rskip_ln"), ("sas", "sas"))
        ),
    ],
    flags=["--dropout", "0.1"],
    vocabulary=37_000,
    lengths=(24, 32, 40),
)


def build_trainer(system: System, workload: Workload, dictionary: Dictionary, *flags: str) -> Trainer:
    """fairseq's Trainer, built as in fairseq-train."""
    words = [
        "unused", "--task", "translation", "--source-lang", "en", "--target-lang", "de", "--arch", system.arch,
        "--share-all-embeddings", *workload.flags, "--criterion", system.criterion, "--label-smoothing", "0.1",
        "--optimizer", system.optimizer, "--lr", "1e-4", "--distributed-world-size", "1", *system.flags, *flags,
    ]  # fmt: skip
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    task = tasks.TASK_REGISTRY["translation"](cfg.task, dictionary, dictionary)
    torch.manual_seed(1)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


def compiled(system: System) -> System:
    """Compiles our layers; fairseq's model does not change."""
    if system.arch == "transformer":
        return system
    return replace(system, name=f"{system.name}, compiled", flags=(*system.flags, "--compile-layers"))


def make_dictionary(words: int) -> Dictionary:
    """A dictionary with this number of symbols."""
    dictionary = Dictionary()
    for index in range(words - len(dictionary)):
        dictionary.add_symbol(f"word{index}")
    return dictionary


def make_batches(count: int, tokens: int, dictionary: Dictionary, lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    """Batches of random tokens with at most `tokens` padded tokens, from sentences of these lengths in turn."""
    padding, end = dictionary.pad(), dictionary.eos()
    generator = torch.Generator().manual_seed(1)
    batches = []
    for index in range(count):
        length = lengths[index % len(lengths)]  # fairseq batches sentences of similar lengths
        rows = tokens // length

        def sentences(left: bool, rows: int = rows, length: int = length) -> torch.Tensor:
            words = torch.randint(4, len(dictionary), (rows, length), generator=generator)
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


def take_steps(trainer: Trainer, batches: list[dict[str, Any]]) -> None:
    """One update on each batch."""
    for batch in batches:
        with metrics.aggregate("train_inner"):
            trainer.train_step([batch])


def time_steps(trainer: Trainer, batches: list[dict[str, Any]]) -> float:
    """Seconds for one update on each batch."""
    synchronise(trainer.device)
    start = time.perf_counter()
    take_steps(trainer, batches)
    synchronise(trainer.device)
    return time.perf_counter() - start


def main() -> None:
    parser = benchmark_parser(__doc__, "train_speed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--device", type=named_device, default="cpu", help="cpu, cuda or one GPU such as cuda:1")
    parser.add_argument("--compile-layers", action="store_true", help="compile our layers, not fairseq's")
    parser.add_argument("--profile", type=Path, help="write PyTorch's profile of each system's update to this folder")
    args = parser.parse_args()

    on_gpu = args.device.type == "cuda"
    workload = GPU if on_gpu else CPU
    if args.compile_layers:
        workload = replace(workload, systems=[compiled(each) for each in workload.systems])
    dictionary = make_dictionary(workload.vocabulary)
    batches = make_batches(args.steps, args.tokens, dictionary, workload.lengths)
    tokens = sum(batch["ntokens"] for batch in batches)
    trainers, memory = [], []
    for system in workload.systems:
        print(f"warm-up: {system.name}", file=sys.stderr)
        with peak_memory(args.device) as peak:
            trainers.append(build_trainer(system, workload, dictionary, *([] if on_gpu else ["--cpu"])))
            take_steps(trainers[-1], batches)  # warm-up
        memory.append(peak)
    times: list[list[float]] = [[] for _ in trainers]
    for round_number in range(args.rounds):
        for column, trainer in zip(times, trainers, strict=True):
            column.append(time_steps(trainer, batches))
        print(f"round {round_number + 1} of {args.rounds}", file=sys.stderr)

    rows = []
    for system, trainer, column, peak in zip(workload.systems, trainers, times, memory, strict=True):
        ratio, *ratio_range = median_min_max([base / own for base, own in zip(times[0], column, strict=True)])
        rows.append(
            {
                "system": system.name,
                "parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
                "tokens_per_second": round(tokens / statistics.median(column)),
                "ratio": ratio,
                "ratio_range": ratio_range,
                **({"update_ms": round(1000 * statistics.median(column) / args.steps, 2)} if on_gpu else {}),
                **({"peak_mib": peak.mib} if on_gpu else {}),
            }
        )
    base = workload.systems[0].name.replace("fairseq transformer, ", "fairseq ")
    print(f"| system | target tokens/s | × {base} (min to max) |{' peak, MiB |' if on_gpu else ''}")
    print("|---|---|---|" + "---|" * on_gpu)
    for row in rows:
        low, high = row["ratio_range"]
        cells = f"| {row['system']} | {row['tokens_per_second']:,} | {row['ratio']:.2f} ({low:.2f} to {high:.2f}) |"
        print(cells + (f" {row['peak_mib']:,} |" if on_gpu else ""))
    where = {"device": str(args.device), "tokens": args.tokens} if on_gpu else {}
    values = {"rounds": args.rounds, "target_tokens_a_round": tokens, **where, "rows": rows}
    append_record(args.output, "train_speed", values)
    if args.profile is not None:
        for system, trainer in zip(workload.systems, trainers, strict=True):
            write_profile(args.profile, system.name, lambda trainer=trainer: take_steps(trainer, batches[:1]))
    if on_gpu:
        print(json.dumps({row["system"]: row["ratio"] for row in rows[1:]}))
        return
    names = ("ratio_float32", "ratio_float32_our_loss", "ratio_bf16", "ratio_bf16_our_loss")
    print(json.dumps({name: row["ratio"] for name, row in zip(names, rows[1:5], strict=True)}))


if __name__ == "__main__":
    main()
