"""Servers in processes of their own: rskip's, and the same server code around CTranslate2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ctranslate2

from rskip.generation import SearchOptions
from rskip.translation import TranslatedHypothesis, Translation, Translator
from rskip.translation.segments import Source

BENCHMARK = Path(__file__).resolve().parents[1] / "serve.py"


class CTranslate2Translator(Translator):
    """A translator that searches with CTranslate2. Long sentences are not split.

    Threads translate a share of a batch each: several threads in one product were slower, in int8 by up to 18 x.
    """

    def use(self, folder: Path, *, precision: str, threads: int) -> None:
        self.threads = threads
        self.engine = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=precision, inter_threads=threads, intra_threads=1
        )

    def search(
        self, sources: Sequence[Source], options: SearchOptions, *, max_tokens: int = 4096, searcher: Any = None
    ) -> list[Translation]:
        segments = [[*each.segments[0]] for each in sources]
        longest = max(map(len, segments), default=0) + 1
        share = -(-len(segments) // self.threads) * longest  # CTranslate2 counts padding
        results = self.engine.translate_batch(
            segments, max_batch_size=min(max_tokens, share), batch_type="tokens", beam_size=options.beam,
            length_penalty=options.length_penalty, max_input_length=0, return_scores=True,
            max_decoding_length=int(options.max_length_a * longest + options.max_length_b),
        )  # fmt: skip
        return [self._found(source, result) for source, result in zip(sources, results, strict=True)]

    def _found(self, source: Source, result: Any) -> Translation:
        tokens = tuple(result.hypotheses[0])
        text = self.tokenizer.decode(map(self.tokenizer.target.index, tokens))
        return Translation(source.text, (TranslatedHypothesis(text, result.scores[0], tokens),))


@contextmanager
def server(
    system: str, model: Path, folder: Path | None, *, threads: int, batch_wait: float
) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server that runs within the block.

    :param folder: the model in CTranslate2's format.
    """
    name, precision = system.split()
    settings = ["--threads", str(threads), "--batch-wait", str(batch_wait)]
    if name == "ours":
        command = ["-m", "rskip", "serve", "--model", str(model), "--precision", precision, "--port", "0", "--quiet"]
    else:
        command = [str(BENCHMARK), "--serve", system, "--folder", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(
        [sys.executable, *command, *settings], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    try:
        yield int(re.findall(r":(\d+)", process.stderr.readline())[-1]), process.pid
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()
