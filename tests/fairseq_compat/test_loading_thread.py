"""A program that ends while fairseq's thread loads batches."""

from __future__ import annotations

import pytest

# As a training that ends within an epoch: batches are left, in the queue or not.
PROGRAM = """
import torch
from fairseq.data.iterators import BufferedIterator

class Batches:
    def __len__(self):
        return 10**9
    def __iter__(self):
        x = torch.rand(300, 300, requires_grad=True)
        while True:
            (x @ x).sum().backward()
            yield x

print(next(BufferedIterator({buffer}, Batches())).shape)
"""


@pytest.mark.parametrize("buffer", [pytest.param(10**9, id="room"), pytest.param(2, id="full", marks=pytest.mark.slow)])
def test_it_ends_well(bare_python, buffer):
    ended = bare_python(PROGRAM.format(buffer=buffer))
    assert (ended.returncode, ended.stdout) == (0, "torch.Size([300, 300])\n"), ended.stderr
