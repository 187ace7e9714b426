import subprocess
import sys

# As a training that ends within an epoch: batches are left, in the queue or not.
PROGRAM = """
import torch
import rskip.fairseq_plugin
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


def test_a_program_that_ends_while_batches_are_loaded_ends_well() -> None:
    for buffer in (10**9, 2):  # room for all, and full
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(buffer=buffer)], capture_output=True, text=True, timeout=300
        )
        assert (ended.returncode, ended.stdout) == (0, "torch.Size([300, 300])\n"), ended.stderr
