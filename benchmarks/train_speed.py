"""Training speed: fairseq's own transformer against ours, through fairseq's Trainer, on the same batches.

On a CPU it trains a tiny model on batches of image captions. With --device cuda it trains Transformer-base on longer
sentences, with unmodified fairseq in float16 and bfloat16 and with ours, and also measures the peak memory per update.
All systems alternate in one process. A ratio compares times of the same round; the median over rounds is reported.
Prints a table and appends one JSON line to study/results/benchmarks/train_speed.jsonl.

    python benchmarks/train_speed.py [--rounds 7] [--steps 3] [--tokens 4096] [--device cuda] [--compile-layers]
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

from measuring.fairseq_training import (
    CPU,
    GPU,
    build_trainer,
    compiled,
    make_batches,
    make_dictionary,
    take_steps,
    time_steps,
)
from measuring.gpu import named_device, peak_memory, write_profile
from measuring.record import append_record, benchmark_parser
from measuring.rounds import median_min_max, ratios, report, take_turns


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
        report(f"warm-up: {system.name}")
        with peak_memory(args.device) as peak:
            trainers.append(build_trainer(system, workload, dictionary, *([] if on_gpu else ["--cpu"])))
            take_steps(trainers[-1], batches)  # warm-up
        memory.append(peak)
    names = [system.name for system in workload.systems]
    calls = {name: partial(time_steps, each, batches) for name, each in zip(names, trainers, strict=True)}
    times = take_turns(calls, args.rounds, title="training")

    rows = []
    for name, trainer, peak in zip(names, trainers, memory, strict=True):
        ratio, *ratio_range = median_min_max(ratios(times, names[0], name))
        rows.append(
            {
                "system": name,
                "parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
                "tokens_per_second": round(tokens / statistics.median(times[name])),
                "ratio": ratio,
                "ratio_range": ratio_range,
                **({"update_ms": round(1000 * statistics.median(times[name]) / args.steps, 2)} if on_gpu else {}),
                **({"peak_mib": peak.mib} if on_gpu else {}),
            }
        )
    base = names[0].replace("fairseq transformer, ", "fairseq ")
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
        for name, trainer in zip(names, trainers, strict=True):
            write_profile(args.profile, name, lambda trainer=trainer: take_steps(trainer, batches[:1]))


if __name__ == "__main__":
    main()
