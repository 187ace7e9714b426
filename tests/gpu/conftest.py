"""Tests that need a GPU; each is skipped, with the reason, where PyTorch can use none."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def gpu() -> torch.device:
    """The first GPU, whose float32 products are float32's."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU that PyTorch can use")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return torch.device("cuda", 0)
