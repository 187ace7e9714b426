"""Whether the compiled search finds what the PyTorch search finds, with trained models and many settings.

35 settings of a search, 200 sentences of Multi30k's test set, 5 models. Both searches use the kernels' steps, so every
difference is one of the search. Token ids must be equal, scores to 3e-5, or 3e-5 of their size, and attention exactly.
It prints one line per model and ends with status 1 if anything differs. On one core it takes about 15 minutes.

    python benchmarks/compare_searches.py SOURCE [--sentences 200] [--precision float32] [--models NAME ...]
"""

from __future__ import annotations

import argparse
import gzip
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from rskip.checkpoint import build_transformer, read_checkpoint
from rskip.cpu import for_inference
from rskip.generation import Hypothesis, SearchOptions, beam_search, find_search
from rskip.text import Dictionary, Tokenizer

PAD, BATCH = 1, 32
CHECKPOINTS = Path(__file__).resolve().parent.parent / "checkpoints"
MODELS = [f"multi30k_en_de/{name}" for name in ("1xskip_ln", "2rskip_ln", "2xskip_ln", "prenorm_ln", "sas")]
SETTINGS: list[dict[str, Any]] = [
    {},
    *({"beam": beam} for beam in (1, 2, 3, 5, 8, 20)),
    *({"length_penalty": penalty} for penalty in (0.0, 0.6, 1.5, -1.0)),
    *({"length_penalty": penalty, "length_penalty_kind": "gnmt"} for penalty in (0.6, 1.2)),
    {"min_length": 15},
    {"max_length_b": 5},
    {"max_length_a": 0.5, "max_length_b": 1},
    {"max_length_a": 1.2, "max_length_b": 10},
    {"min_length": 12, "max_length_b": 12},
    *({"unknown_penalty": penalty} for penalty in (0.5, 3.0, -2.0, math.inf)),
    *({"temperature": temperature} for temperature in (0.5, 1.4, 3.0)),
    *({"no_repeat_ngram": size} for size in (1, 2, 3)),
    {"prefix": True},
    {"prefix": True, "beam": 5, "min_length": 8},
    {"prefix": True, "no_repeat_ngram": 2, "unknown_penalty": math.inf},
    {"prefix": True, "max_length_b": 2},
    {"beam": 5, "length_penalty": 0.6, "max_length_a": 1.2, "max_length_b": 10},
    {"beam": 10, "length_penalty_kind": "gnmt", "temperature": 1.2, "no_repeat_ngram": 3, "unknown_penalty": 1.0},
    {"beam": 3, "temperature": 2.0, "min_length": 3, "max_length_b": 30, "unknown_penalty": -1.0},
]


def batches(name: str, lines: list[str]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sources (B, S), padded on the right, and as prefixes (B, 2) the first tokens of their copies in the target."""
    tokenizer = Tokenizer.load(CHECKPOINTS / name)
    made = []
    for first in range(0, len(lines), BATCH):
        part = lines[first : first + BATCH]
        source = [torch.tensor(tokenizer.encode(line)) for line in part]
        prefix = torch.tensor([[*tokenizer.encode_prefix(line), PAD, PAD][:2] for line in part])
        prefix[::3, 1] = PAD  # of one token
        made.append((pad_sequence(source, batch_first=True, padding_value=PAD), prefix))
    return made


def is_equal(ours: Hypothesis, theirs: Hypothesis) -> bool:
    """Whether two hypotheses are the same."""
    assert ours.token_scores is not None and theirs.token_scores is not None
    return (
        ours.tokens.tolist() == theirs.tokens.tolist()
        and math.isclose(ours.score, theirs.score, rel_tol=3e-5, abs_tol=3e-5)
        and torch.allclose(ours.token_scores, theirs.token_scores, rtol=0, atol=3e-5)
        and ours.attention is not None
        and theirs.attention is not None
        and torch.equal(ours.attention, theirs.attention)
    )


def search(
    model: Any, source: torch.Tensor, prefix: torch.Tensor | None, options: SearchOptions, *, compiled: bool
) -> list[list[Hypothesis]]:
    """The hypotheses of a batch."""
    find = find_search(model.device) if compiled else beam_search
    with torch.inference_mode():
        return find(model, model.encode(source), options, source_lengths=source.ne(PAD).sum(1), prefix=prefix)


def compare(name: str, lines: list[str], precision: str) -> tuple[int, int, float, float]:
    """Numbers of compared sentences and of different ones, and the processor time of both searches."""
    folder = CHECKPOINTS / name
    checkpoint = read_checkpoint(folder / "model.safetensors")
    sizes = [len(Dictionary.load(str(folder / f"dict.{side}.txt"))) for side in ("en", "de")]
    model = build_transformer(checkpoint, source_vocabulary=sizes[0], target_vocabulary=sizes[1])
    model = for_inference(model, precision)
    compared, different, times = 0, 0, [0.0, 0.0]
    for number, settings in enumerate(SETTINGS):
        settings = dict(settings)
        is_forced = settings.pop("prefix", False)
        nbest = settings.get("beam", 4)
        options = SearchOptions(token_scores=True, attention=True, nbest=nbest, **settings)
        for source, prefix in batches(name, lines):
            found = []
            for place, compiled in enumerate((True, False)):
                start = time.process_time()
                found.append(search(model, source, prefix if is_forced else None, options, compiled=compiled))
                times[place] += time.process_time() - start
            for ours, theirs in zip(*found, strict=True):
                compared += 1
                same = len(ours) == len(theirs) and all(map(is_equal, ours, theirs))
                different += not same
                if not same and different <= 5:
                    shown = [[(each.score, each.tokens.tolist()) for each in found] for found in (ours, theirs)]
                    print(f"{name}, setting {number} {settings}: {shown[0]} and {shown[1]}", file=sys.stderr)
    return compared, different, *times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="English sentences, one per line; a name in .gz is decompressed")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--models", nargs="+", default=MODELS)
    arguments = parser.parse_args()
    opened = gzip.open if arguments.source.suffix == ".gz" else open
    with opened(arguments.source, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()[: arguments.sentences]
    failed = 0
    for name in arguments.models:
        compared, different, ours, theirs = compare(name, lines, arguments.precision)
        failed += different
        times = f"{ours:.0f} s of processor time against {theirs:.0f}"
        print(f"{name}: {compared} searches with {len(SETTINGS)} settings, {different} differ; {times}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
