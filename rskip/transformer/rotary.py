"""Rotary positions: queries and keys are rotated by angles that grow with their position (Su et al. 2021).

The order of features and the precision are those of Hugging Face's Llama: feature i is rotated with feature i + D/2,
and angles are computed in float32. B batch, H heads, T positions, D features per head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rskip.settings.check import Checked
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Positions, Positive


@dataclass(frozen=True, kw_only=True)
class RotaryScaling(Checked):
    """Lower frequencies for contexts that are longer than those of the first training.

    :param kind: "linear" divides all frequencies by `factor`. "llama3" divides those whose wavelength exceeds
        `original_positions` / `low_freq_factor`, leaves those below `original_positions` / `high_freq_factor`, and
        interpolates between them, as Llama 3.1 does.
    """

    kind: Literal["linear", "llama3"]
    factor: Positive
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    original_positions: Positions = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high_freq_factor <= self.low_freq_factor:
            expected = f"more than low_freq_factor, {self.low_freq_factor:g}"
            raise SettingError.of_value("high_freq_factor", self.high_freq_factor, expected)

    def scaled(self, frequencies: Tensor) -> Tensor:
        """The frequencies (D/2) after scaling."""
        if self.kind == "linear":
            return frequencies / self.factor
        low, high = self.low_freq_factor, self.high_freq_factor
        turns = self.original_positions / (2 * math.pi / frequencies)  # in the original context
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


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
