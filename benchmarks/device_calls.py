"""Operator calls on a GPU, the bytes that they read and write, and the host's waits, counted on an emulated GPU.

    python benchmarks/device_calls.py [--only forward_backward search_step update]

Nothing is timed, because only a real GPU shows the time of a call. A fused or foreach operator and attention count as
one call each; views do not count. Prints tables and appends one JSON line to
study/results/benchmarks/device_calls.jsonl.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from measuring.record import append_record, benchmark_parser

from rskip.generation import SearchOptions, beam_search
from rskip.transformer import Transformer, TransformerConfig
from tests.emulated_device import Counts, emulated_cuda

CONNECTIONS = ("1xskip+ln", "2rskip+ln", "sas")
LAYERS = 6  # per stack, as in Transformer-base
VOCABULARY = 32_000
SENTENCES, LENGTH = 128, 32  # 4,096 tokens per side
STEPS = 8  # of a search, after the first step

Row = dict[str, Any]


def row(counts: Counts, share: int = 1, **of: Any) -> Row:
    """The counts per repetition, for `share` repetitions."""
    return {
        **of,
        "calls": round(counts.calls.total() / share, 1),
        "gigabytes": round(counts.traffic.total() / share / 1e9, 2),
        "synchronisations": round(counts.synchronisations.total() / share, 1),
        "where": dict(counts.synchronisations),
    }


def transformer(connection: str) -> Transformer:
    """Transformer-base."""
    sizes = {"embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8, "layers": LAYERS, "connection": connection}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    return Transformer(
        TransformerConfig(
            source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, share_all_embeddings=True, dropout=0.1, **sides
        )
    )


def forward_backward() -> list[Row]:
    """Transformer-base in bfloat16 and training mode, 4,096 source and 4,096 target tokens, padded sources."""
    rows = []
    for connection in CONNECTIONS:
        with emulated_cuda(values=False) as counts:
            model = transformer(connection).to("cuda", torch.bfloat16)
            model.decoder.left_padded = False
            source, prefix = (torch.zeros(SENTENCES, LENGTH, dtype=torch.long, device="cuda") for _ in range(2))
            memory = model.encoder(source)
            counts.clear()
            memory = model.encoder(source)
            features = model.decoder.features(prefix, memory)
            features.backward(torch.ones_like(features))
            rows.append(row(counts, connection=connection, dtype="bfloat16"))
    return rows


def search_step() -> list[Row]:
    """One step of beam search (beam 4) with Transformer-base in float32, for 8 sentences of at least 10 tokens."""
    rows = []
    for connection in CONNECTIONS:
        with emulated_cuda() as counts, torch.inference_mode():
            model = transformer(connection).eval().to("cuda")
            source = torch.randint(4, 100, (8, 10))
            source[0, 6:] = 1
            memory = model.encode(source.to("cuda"))
            watched = _CountedFromSecondStep(model, counts)
            options = SearchOptions(beam=4, max_length_b=STEPS + 1, min_length=STEPS + 1)
            beam_search(watched, memory, options, source_lengths=source.ne(1).sum(1).to("cuda"))
            rows.append(row(counts, watched.steps - 1, connection=connection, dtype="float32"))
    return rows


def update() -> list[Row]:
    """An update with fairseq's trainer: 6 + 6 layers in training mode. They are narrow, so bytes are meaningless."""
    from measuring import fairseq_training  # only this part imports fairseq

    narrow = ("embed-dim=32", "ffn-embed-dim=64", "attention-heads=2")
    sizes = [f"--{side}-{size}" for side in ("encoder", "decoder") for size in narrow]
    workload = replace(fairseq_training.GPU, vocabulary=400, flags=[*sizes, "--dropout", "0.1"])
    dictionary = fairseq_training.make_dictionary(workload.vocabulary)
    batches = fairseq_training.make_batches(1, 128, dictionary, (8,))
    rows = []
    for system in workload.systems:
        with emulated_cuda() as counts:
            trainer = fairseq_training.build_trainer(system, workload, dictionary)
            fairseq_training.take_steps(trainer, batches)
            counts.clear()
            fairseq_training.take_steps(trainer, batches)
            rows.append(row(counts, system=system.name))
            del rows[-1]["gigabytes"]
    return rows


class _CountedFromSecondStep:
    """A decoder that discards the counts of its first step, which builds caches. No search makes its last step."""

    def __init__(self, model: Transformer, counts: Counts) -> None:
        self.model, self.counts, self.steps = model, counts, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def step(self, tokens: torch.Tensor, state: Any) -> torch.Tensor:
        self.steps += 1
        if self.steps == 2:
            self.counts.clear()
        return self.model.step(tokens, state)


PARTS: dict[str, Callable[[], list[Row]]] = {
    "forward_backward": forward_backward, "search_step": search_step, "update": update,
}  # fmt: skip


def main() -> None:
    parser = benchmark_parser(__doc__, "device_calls")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="default: all")
    args = parser.parse_args()
    found = {}
    for name in args.only:
        found[name] = PARTS[name]()
        print(f"\n{name}: {(PARTS[name].__doc__ or '').strip()}")
        for each in found[name]:
            print("  " + json.dumps({key: value for key, value in each.items() if key != "where"}))
    append_record(args.output, "device_calls", {"parts": found})


if __name__ == "__main__":
    main()
