"""The time of an update of nanoGPT's quick-start model and of ours with prenorm+ln, which alternate on one thread.

Both have 4 layers, 4 heads, 128 features and 12 x 64 characters, as in recipes/shakespeare_char.yaml. An update is
forward, loss, backward, clipping and AdamW's step, for nanoGPT as in its train.py with compile=False. Prints the ratio
and appends one JSON line to study/results/benchmarks/nanogpt_update.jsonl.

    git clone https://github.com/karpathy/nanoGPT
    python benchmarks/nanogpt_update.py nanoGPT [--rounds 51]
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from connection_cost import CHARACTERS, MODELS, update
from measuring.record import append_record, benchmark_parser
from measuring.rounds import compare
from torch import nn

OURS = MODELS["language_modeling_4"]


def nanogpt_update(nanogpt: Any) -> Callable[[], None]:
    """One update of nanoGPT's model on one batch. `nanogpt`: its module model.py."""
    torch.manual_seed(1)
    inputs, targets = OURS.inputs()
    sizes = {"block_size": inputs.shape[1], "vocab_size": CHARACTERS, "n_layer": 4, "n_head": 4, "n_embd": 128}
    model = nanogpt.GPT(nanogpt.GPTConfig(**sizes, dropout=0.0, bias=False))
    optimiser = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")

    def step() -> None:
        _, loss = model(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = benchmark_parser(__doc__, "nanogpt_update")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("nanoGPT"), help="a clone (default: nanoGPT)")
    parser.add_argument("--rounds", type=int, default=51, help="number of timed pairs of updates (default: 51)")
    args = parser.parse_args()
    file = args.folder / "model.py"
    if not file.is_file():
        print(f"{file} is missing: clone nanoGPT and give its folder; nothing was measured")
        return
    described = importlib.util.spec_from_file_location("nanogpt", file)
    assert described is not None and described.loader is not None
    nanogpt = importlib.util.module_from_spec(described)
    described.loader.exec_module(nanogpt)
    torch.set_num_threads(1)
    found = compare(nanogpt_update(nanogpt), update(OURS, OURS.baseline), args.rounds)
    row = {"nanogpt_ms": found["before_ms"], "ours_ms": found["now_ms"], "ratio": found["ratio"]}
    print("  ".join(f"{key} {value}" for key, value in row.items()))
    append_record(
        args.output, "nanogpt_update",
        {"rounds": args.rounds, "model_py_sha256": hashlib.sha256(file.read_bytes()).hexdigest(), **row},
    )  # fmt: skip


if __name__ == "__main__":
    main()
