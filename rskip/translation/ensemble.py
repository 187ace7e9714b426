"""Several models that translate as one. B segments, S source length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rskip.generation.ensemble import EnsembleDecoder
from rskip.translation.search import TorchModel


class Ensemble(EnsembleDecoder):
    """A `TranslationModel` with the mean of its models' probabilities.

    The models have the same dictionaries. Their sizes and connections may differ.
    """

    def __init__(self, models: Sequence[TorchModel], *, temperature: float = 1.0) -> None:
        super().__init__(models, temperature=temperature)
        self.models = list(models)
        limits = [model.max_source_positions for model in models]
        self.max_source_positions = min((limit for limit in limits if limit is not None), default=None)
        self.trained_source_positions = min(model.trained_source_positions for model in models)
        self.connection = ", ".join(dict.fromkeys(model.connection for model in models))
        self.target_start, self.precision = models[0].target_start, models[0].precision

    @property
    def device(self) -> torch.device:
        """The device of its models."""
        return self.models[0].device

    def move(self, device: torch.device) -> None:
        """Moves all models. Raises `ValueError` if one can't compute on the device."""
        for model in self.models:
            model.move(device)

    def encode(self, source: Tensor, *, padded: bool | None = None) -> list[Any]:
        """Each model's memory of source tokens (B, S)."""
        return [model.encode(source, padded=padded) for model in self.models]
