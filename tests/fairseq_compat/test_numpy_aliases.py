"""Patch of `np.int` and `np.float`."""

from __future__ import annotations

USE = """
import numpy as np
import torch
from fairseq.data.data_utils import compute_mask_indices
from fairseq.modules.dynamic_crf_layer import DynamicCRF

def masking():
    mask = compute_mask_indices((2, 40), None, 0.5, 4, no_overlap=True)
    return f"{mask.dtype} {mask.any()}"

def crf():
    layer, targets = DynamicCRF(8, low_rank=2, beam_size=4), torch.tensor([[1, 2, 3]])
    return layer(torch.randn(1, 3, 8), targets, torch.ones(1, 3, dtype=torch.bool)).isfinite().item()

np.random.seed(1)
torch.manual_seed(1)
for use in (masking, crf):
    try:
        print(use())
    except AttributeError as error:
        print(str(error).partition(".")[0])
print(hasattr(np, "int"))
"""


def test_masking_and_dynamic_crf_fail_without_the_patch(python):
    process = python(USE, without="numpy-aliases")
    assert process.stdout == (
        "module 'numpy' has no attribute 'int'\nmodule 'numpy' has no attribute 'float'\nFalse\n"
    ), process.stderr


def test_masking_and_dynamic_crf_work_and_numpy_stays_as_it_is(python):
    process = python(USE)
    assert process.stdout == "bool True\nTrue\nFalse\n", process.stderr
