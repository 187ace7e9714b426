"""rskip."""

from __future__ import annotations

import sys

from decoding.systems import Search, Tokens
from rskip.generation import SearchOptions
from rskip.transformer import Transformer
from rskip.translation.piece_search import Piece, search_pieces


class Ours:
    """What `Translator` searches with."""

    def __init__(self, model: Transformer, search: Search) -> None:
        self.model = model
        self.options = SearchOptions(
            beam=search.beam, min_length=search.shortest, max_length_b=search.longest
        )

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        found: dict[int, Tokens] = {}
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            pieces = [Piece(source=sentences[index], prefix=[]) for index in batch]
            hypotheses = search_pieces(self.model, pieces, self.options, max_tokens=sys.maxsize)
            for index, best in zip(batch, hypotheses, strict=True):
                found[index] = best[0].tokens.tolist()[:-1]
        return [found[index] for index in range(len(sentences))]
