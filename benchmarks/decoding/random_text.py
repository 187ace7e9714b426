"""Random sentences and their dictionary."""

from __future__ import annotations

import random

from decoding.systems import Tokens
from rskip.text import Dictionary

VOCABULARY = 8_000


def random_dictionary() -> Dictionary:
    """VOCABULARY tokens."""
    return Dictionary(f"token{index}" for index in range(VOCABULARY - 4))


def random_sentences(count: int, lengths: tuple[int, int], *, vocabulary: int = VOCABULARY) -> list[Tokens]:
    """Sentences of random tokens with random lengths within these bounds, including the end symbol."""
    generator = random.Random(1)
    return [
        [generator.randrange(4, vocabulary) for _ in range(generator.randint(*lengths) - 1)] + [Dictionary.eos_index]
        for _ in range(count)
    ]
