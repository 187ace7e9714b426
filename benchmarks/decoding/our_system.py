"""rskip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decoding.systems import Search, Tokens
from rskip.generation import SearchOptions
from rskip.translation.search import ModelSearcher, Searcher, Segment, TranslationModel

if TYPE_CHECKING:
    from rskip.translation import Workers


class Ours:
    """`Translator`'s search: one worker process per thread for several batches, threads for one batch."""

    def __init__(self, model: TranslationModel, search: Search, *, threads: int) -> None:
        self.options = SearchOptions(
            beam=search.beam, min_length=search.shortest, max_length_b=search.longest
        )
        self.model, self.threads = model, threads
        self.workers: Workers | None = None  # started when they are needed

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()

    def _searcher(self, batches: int) -> Searcher:
        if batches == 1 or self.threads == 1:
            return ModelSearcher(self.model)
        if self.workers is None:
            from rskip.translation import Workers  # imported here because a single batch doesn't need it

            self.workers = Workers(self.model, self.threads)
        return self.workers

    def translate(self, sentences: list[Tokens], batch_size: int) -> list[Tokens]:
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        segments = [[Segment(source=sentences[index], prefix=[]) for index in batch] for batch in batches]
        found: dict[int, Tokens] = {}
        searcher = self._searcher(len(batches))
        for batch, hypotheses in zip(batches, searcher(segments, self.options), strict=True):
            for index, best in zip(batch, hypotheses, strict=True):
                found[index] = best[0].tokens.tolist()[:-1]
        return [found[index] for index in range(len(sentences))]
