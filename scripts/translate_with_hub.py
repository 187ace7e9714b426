"""Translates sentences with a pretrained model that torch.hub loads from this checkout. `make demo` runs it last."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

NAME = "transformer_tiny_2rskip_ln.multi30k.en-de"
SENTENCES = ["Two dogs are playing in the snow.", "A man in a blue shirt is standing on a ladder cleaning a window."]


def main() -> None:
    checkout = Path(__file__).resolve().parents[1]
    translator = torch.hub.load(str(checkout), NAME, source="local")
    print(f'\ntorch.hub.load("rskip", "{NAME}", source="local") translates')
    sentences = sys.argv[1:] or SENTENCES
    for sentence, translation in zip(sentences, translator.translate(sentences), strict=True):
        print(f"  {sentence}\n    {translation.text}")


if __name__ == "__main__":
    main()
