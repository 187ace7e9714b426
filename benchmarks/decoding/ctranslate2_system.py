"""CTranslate2."""

from __future__ import annotations

from pathlib import Path

import ctranslate2

from decoding.systems import Search, Tokens
from rskip.text import Dictionary


class CTranslate2:
    """CTranslate2 on a folder from `write_ctranslate2`, with a separate batch per thread.

    This is its faster mode here: with both threads on one batch it took up to three times as long.
    """

    def __init__(
        self, folder: Path, source: Dictionary, target: Dictionary, search: Search, *, precision: str, threads: int
    ) -> None:
        self.translator = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=precision, inter_threads=threads, intra_threads=1
        )
        self.source, self.target = source, target
        self.length = search.length
        # at the max length it stops, while the others take one more step to end
        shortest, longest = (search.length + 1,) * 2 if search.length else (search.shortest, search.longest)
        self.options = {
            "beam_size": search.beam,
            "min_decoding_length": shortest,
            "max_decoding_length": longest,
            "max_input_length": 0,
        }

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        words = [[self.source.tokens[index] for index in sentence[:-1]] for sentence in sentences]
        results = self.translator.translate_batch(words, max_batch_size=batch_size, **self.options)
        found = [[self.target.index(token) for token in result.hypotheses[0]] for result in results]
        if self.length is None:
            return found
        assert all(len(tokens) == self.length + 1 for tokens in found)
        return [tokens[: self.length] for tokens in found]
