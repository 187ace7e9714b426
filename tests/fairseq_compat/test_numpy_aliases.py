"""Patch of `np.int` and `np.float`."""

from __future__ import annotations

MASK = """
import numpy as np
from fairseq.data.data_utils import compute_mask_indices
np.random.seed(1)
mask = compute_mask_indices((2, 40), None, 0.5, 4, no_overlap=True)
print(mask.dtype, mask.any(), hasattr(np, "int"))
"""

CRF = """
import torch
from fairseq.modules import dynamic_crf_layer
torch.manual_seed(1)
layer = dynamic_crf_layer.DynamicCRF(8, low_rank=2, beam_size=4)
targets = torch.tensor([[1, 2, 3]])
print(layer(torch.randn(1, 3, 8), targets, torch.ones(1, 3, dtype=torch.bool)).isfinite().item())
"""


def test_masking_fails_without_the_patch(python):
    process = python(MASK, without="numpy-aliases")
    assert process.returncode == 1
    assert "module 'numpy' has no attribute 'int'" in process.stderr


def test_masking_works_and_numpy_stays_as_it_is(python):
    process = python(MASK)
    assert process.stdout == "bool True False\n", process.stderr


def test_dynamic_crf_fails_without_the_patch(python):
    process = python(CRF, without="numpy-aliases")
    assert process.returncode == 1
    assert "module 'numpy' has no attribute 'float'" in process.stderr


def test_dynamic_crf_works(python):
    process = python(CRF)
    assert process.stdout == "True\n", process.stderr
