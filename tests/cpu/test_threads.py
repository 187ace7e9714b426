"""Threads that share a model get the same results as single ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rskip.cpu import find_library, for_inference
from rskip.generation import SearchOptions, beam_search

pytestmark = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")

THREADS = 8
LENGTHS = [3, 1500, 40, 7, 700, 256, 257, 12, 90, 1100, 5, 300, 31, 900, 2, 120]


def translations(model, length):
    """The hypotheses of two sources of `length` and half as many tokens, with targets as long as the source."""
    source = torch.randint(4, 23, (2, length), generator=torch.Generator().manual_seed(length))
    source[1, length // 2 :] = 1
    source[0, -1] = source[1, max(length // 2 - 1, 0)] = 2
    options = SearchOptions(beam=2, nbest=2, min_length=length // 10, max_length_b=max(1, length // 8))
    with torch.inference_mode():
        found = beam_search(model, model.encode(source), options, source_lengths=source.ne(1).sum(1))
    return [(each.tokens.tolist(), each.score) for hypotheses in found for each in hypotheses]


def test_threads_with_sources_of_mixed_lengths_get_what_one_thread_gets(build):
    def model():
        return for_inference(build("2rskip+ln", max_source_positions=20, max_target_positions=20), "float32")

    alone = model()
    expected = {length: translations(alone, length) for length in LENGTHS}
    shared = model()  # whose tables are small again, and grow while other threads read them
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda length: translations(shared, length), LENGTHS))
    assert found == [expected[length] for length in LENGTHS]
