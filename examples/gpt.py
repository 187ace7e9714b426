"""Five residual connections in a language model of your own: two minutes on a CPU, one chart.

    python examples/gpt.py [TEXT]

Trains a small GPT on the characters of TEXT (default: the guides in docs/) with each connection, from the same random
numbers and on the same batches, and writes gpt.svg: the held-out loss against the seconds of training. One run each
shows how to do it, not which connection is better: for that see `rskip compare`. Needs matplotlib.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from rskip.nn import Residuals, check_calls, no_weight_decay

CONNECTIONS = ("prenorm+ln", "residual_dual", "attnres", "hyper", "mhc")
FEATURES, HEADS, LAYERS, CONTEXT, BATCH = 96, 3, 4, 64, 12
UPDATES, EVERY, RATE = 250, 50, 2e-3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(FEATURES, 3 * FEATURES), nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).movedim(-3, 0).transpose(-3, -2)
        return self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-3, -2).flatten(-2))


class GPT(nn.Module):
    def __init__(self, characters: int, connection: str) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(characters, FEATURES), nn.Embedding(CONTEXT, FEATURES)
        self.attention = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.ffn = nn.ModuleList(
            nn.Sequential(nn.Linear(FEATURES, 4 * FEATURES), nn.GELU(), nn.Linear(4 * FEATURES, FEATURES))
            for _ in range(LAYERS)
        )
        self.residuals = Residuals(connection, FEATURES, layers=LAYERS)
        self.head = nn.Linear(FEATURES, characters)

    def forward(self, tokens: Tensor) -> Tensor:
        s = self.residuals.enter(self.tokens(tokens) + self.positions.weight[: tokens.shape[-1]])
        for residual, attention, ffn in zip(self.residuals, self.attention, self.ffn, strict=True):
            s = residual.ffn(residual.attention(s, attention), ffn)
        return self.head(self.residuals.leave(s))


def train(connection: str, text: Tensor, held_out: Tensor, characters: int) -> list[tuple[float, float]]:
    """Pairs of seconds of training and held-out loss."""
    torch.manual_seed(1)
    model = GPT(characters, connection)
    check_calls(model, held_out[:2, :-1])  # once: are all connections called, in order?
    kept = no_weight_decay(model)
    groups = [
        {"params": [p for name, p in model.named_parameters() if p.dim() < 2 or name in kept], "weight_decay": 0.0},
        {"params": [p for name, p in model.named_parameters() if p.dim() >= 2 and name not in kept]},
    ]
    optimiser = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99), weight_decay=0.1)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimiser, 0.05, total_iters=20)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, UPDATES - 20, eta_min=RATE / 10)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimiser, [warm_up, cosine], [20])
    draws = torch.Generator().manual_seed(1)
    curve, seconds = [], 0.0
    for update in range(1, UPDATES + 1):
        start = time.perf_counter()
        places = torch.randint(len(text) - CONTEXT, (BATCH, 1), generator=draws) + torch.arange(CONTEXT + 1)
        loss = cross_entropy(model(text[places[:, :-1]]).flatten(0, 1), text[places[:, 1:]].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        seconds += time.perf_counter() - start
        if update % EVERY == 0:
            with torch.inference_mode():
                logits = model(held_out[:, :-1])
            curve.append((seconds, cross_entropy(logits.flatten(0, 1), held_out[:, 1:].flatten()).item()))
    print(f"{connection:14} loss {curve[-1][1]:.3f} after {UPDATES} updates in {seconds:.0f} s", flush=True)
    return curve


def main() -> None:
    docs = sorted(Path(__file__).resolve().parents[1].glob("docs/*.md"))
    paths = [Path(each) for each in sys.argv[1:]] or docs
    content = "".join(path.read_text(encoding="utf-8") for path in paths)
    numbers = {character: number for number, character in enumerate(sorted({*content}))}
    tokens = torch.tensor([numbers[character] for character in content])
    text, rest = tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]
    held_out = rest.unfold(0, CONTEXT + 1, CONTEXT)[:128]
    for connection in CONNECTIONS:
        curve = train(connection, text, held_out, len(numbers))
        plt.plot(*zip(*curve, strict=True), marker="o", label=connection)
    plt.xlabel("seconds of training")
    plt.ylabel("held-out loss")
    plt.legend()
    plt.savefig("gpt.svg")


if __name__ == "__main__":
    main()
