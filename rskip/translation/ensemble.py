"""Translates with several models as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from rskip.generation.ensemble import EnsembleDecoder

if TYPE_CHECKING:
    from rskip.translation.search import TorchModel


class Ensemble(EnsembleDecoder):
    """A `TranslationModel` with the mean of its models' probabilities.

    The models have the same dictionaries. Their sizes and connections may differ.

    models: the models in order.
    """

    def __init__(self, models: Sequence[TorchModel], *, temperature: float = 1.0) -> None:
        super().__init__(models, temperature=temperature)
        self.models = list(models)

    def tempered(self, temperature: float) -> Ensemble:
        """The same ensemble, in which `temperature` divides each model's logits before the mean."""
        return Ensemble(self.models, temperature=temperature)

    @property
    def device(self) -> torch.device:
        """The device of its models."""
        return self.models[0].device

    @property
    def precision(self) -> str:
        """The precision of its models."""
        return self.models[0].precision

    @property
    def connection(self) -> str:
        """The different specs of its models' connections."""
        return ", ".join(dict.fromkeys(model.connection for model in self.models))

    @property
    def max_source_positions(self) -> int | None:
        """The smallest limit of all models; None without a limit."""
        limits = [model.max_source_positions for model in self.models]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def target_start(self) -> Literal["end", "begin"]:
        """The token of the dictionary that targets start with."""
        return self.models[0].target_start

    @property
    def trained_source_positions(self) -> int:
        """The maximum source length on which fairseq would have trained all of them."""
        return min(model.trained_source_positions for model in self.models)

    def move(self, device: torch.device) -> None:
        """Moves all models. Raises `ValueError` if one can't compute on the device."""
        for model in self.models:
            model.move(device)

    def encode(self, source: Tensor, *, padded: bool | None = None) -> list[Any]:
        """Each model's memory of source tokens (B, S)."""
        return [model.encode(source, padded=padded) for model in self.models]
