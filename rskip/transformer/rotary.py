"""Rotary positions: queries and keys are rotated by angles that grow with their position (Su et al. 2021).

The order of features and the precision are those of Hugging Face's Llama: feature i is rotated with feature i + D/2,
and angles are computed in float32. B batch, H heads, T positions, D features per head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rskip.transformer.config import RotaryScaling


class Rotation(NamedTuple):
    """Cosines and sines of the angles of T positions, each (B or 1, 1, T, D/2)."""

    cosine: Tensor
    sine: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Rotates queries or keys (B, H, T, D)."""
        first, second = x.chunk(2, -1)
        cosine, sine = self
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1).to(x.dtype)


def rotation_at(positions: Tensor, features: int, theta: float, scaling: RotaryScaling | None) -> Rotation:
    """The rotation of positions (B or 1, T) for `features` per head, with frequencies theta^(-2i/D)."""
    exponents = torch.arange(0, features, 2, dtype=torch.float32, device=positions.device) / features
    frequencies = 1.0 / theta**exponents
    if scaling is not None:
        frequencies = scaling.scaled(frequencies)
    angles = positions[:, None, :, None].float() * frequencies
    return Rotation(angles.cos(), angles.sin())
