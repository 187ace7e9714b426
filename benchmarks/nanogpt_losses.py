"""The loss of nanoGPT's own quick start, to compare with recipes/shakespeare_char.yaml's prenorm_ln.

It runs nanoGPT's data/shakespeare_char/prepare.py and train.py with the options of its README for a CPU, once per seed:
only the seed in train.py is changed. The loss is in nats per character, on all of the validation text, by the same
function as in our recipe. Prints the losses and appends one JSON line to study/results/benchmarks/nanogpt_losses.jsonl.

    git clone https://github.com/karpathy/nanoGPT
    python benchmarks/nanogpt_losses.py nanoGPT [--text input.txt] [--seeds 1 2 3 4 5]
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from measuring.record import append_record, benchmark_parser
from torch import Tensor, nn

from rskip.language_modeling.evaluation import token_losses

CONTEXT = 64
OPTIONS = (
    "config/train_shakespeare_char.py", "--device=cpu", "--compile=False", "--dtype=float32", "--eval_iters=20",
    f"--block_size={CONTEXT}", "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128", "--max_iters=2000",
    "--lr_decay_iters=2000", "--dropout=0.0", "--always_save_checkpoint=True",
)  # fmt: skip
SEED = "torch.manual_seed(1337 + seed_offset)"


class _AllPositions(nn.Module):
    """nanoGPT's model with logits at all positions, which it computes only if it gets targets."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs, inputs)[0]
        return logits


def train(clone: Path, seed: int) -> Path:
    """Trains in the clone's copy, and returns the last checkpoint."""
    script = (clone / "train.py").read_text(encoding="utf-8")
    assert SEED in script, "nanoGPT's train.py sets its seed in another line now"
    own = clone / f"train_{seed}.py"
    own.write_text(script.replace(SEED, f"torch.manual_seed({seed})"), encoding="utf-8")
    subprocess.run([sys.executable, own.name, *OPTIONS, f"--out_dir=out-{seed}"], cwd=clone, check=True)
    return clone / f"out-{seed}" / "ckpt.pt"


def loss(clone: Path, checkpoint: Path) -> float:
    """The mean loss of a checkpoint on the validation text; the token before it is the training text's last."""
    sys.path.insert(0, str(clone))
    from model import GPT, GPTConfig

    saved: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    model = GPT(GPTConfig(**saved["model_args"]))
    model.load_state_dict(saved["model"])
    text, before = (
        torch.from_numpy(np.fromfile(clone / "data" / "shakespeare_char" / f"{part}.bin", np.uint16).astype(np.int64))
        for part in ("val", "train")
    )
    return float(token_losses(_AllPositions(model), text, context=CONTEXT, start=int(before[-1])).mean())


def main() -> None:
    parser = benchmark_parser(__doc__, "nanogpt_losses")
    parser.add_argument("folder", type=Path, help="a clone of nanoGPT")
    parser.add_argument("--text", type=Path, help="Tiny Shakespeare; otherwise nanoGPT downloads it")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="(default: 1 to 5)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary, "nanoGPT")
        shutil.copytree(args.folder, clone)
        data = clone / "data" / "shakespeare_char"
        if args.text is not None:
            shutil.copyfile(args.text, data / "input.txt")
        subprocess.run([sys.executable, "prepare.py"], cwd=data, check=True)
        losses = {seed: round(loss(clone, train(clone, seed)), 4) for seed in args.seeds}
        digest = hashlib.sha256((clone / "train.py").read_bytes() + (clone / "model.py").read_bytes()).hexdigest()
    values = list(losses.values())
    spread = {"std": round(stdev(values), 4)} if len(values) > 1 else {}
    found = {"losses": losses, "mean": round(fmean(values), 4), **spread}
    print(found)
    append_record(args.output, "nanogpt_losses", {"nanogpt_sha256": digest, "options": OPTIONS, **found})


if __name__ == "__main__":
    main()
