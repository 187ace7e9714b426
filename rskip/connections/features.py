"""Where the features of a tensor lie, and in which precision they are computed."""

from __future__ import annotations

import torch
from torch import Tensor


def check_features(features: int, feature_dim: int) -> None:
    """ValueError unless `features` is a whole number of at least 1 and `feature_dim` is -1 or 1."""
    if isinstance(features, bool) or not isinstance(features, int) or features < 1:
        raise ValueError(f"features must be a whole number of at least 1, not {features!r}")
    if feature_dim not in (-1, 1):
        raise ValueError(
            f"feature_dim must be -1 (text: (B, T, C)) or 1 (images: (N, C, H, W)), not {feature_dim!r}"
        )


def at_least_float32(z: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; float32 and float64 as they are."""
    return z.to(torch.promote_types(z.dtype, torch.float32))
