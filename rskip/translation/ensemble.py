"""Several models that translate as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from rskip.generation.ensemble import EnsembleDecoder

if TYPE_CHECKING:
    from rskip.translation.search import TranslationModel


class Ensemble(EnsembleDecoder):
    """A `TranslationModel` whose next token has the mean of its models' probabilities.

    The models have the same dictionaries. They may have other sizes and connections.

    models: in their order.
    """

    def __init__(self, models: Sequence[TranslationModel], *, temperature: float = 1.0) -> None:
        super().__init__(models, temperature=temperature)
        self.models = list(models)

    def tempered(self, temperature: float) -> Ensemble:
        """The ensemble whose models' logits are divided by `temperature`, each before the mean."""
        return Ensemble(self.models, temperature=temperature)

    @property
    def device(self) -> torch.device:
        """Where its models are."""
        return self.models[0].device

    @property
    def precision(self) -> str:
        """What its models compute in."""
        return self.models[0].precision

    @property
    def connection(self) -> str:
        """The specs of its models' connections, each once."""
        return ", ".join(dict.fromkeys(model.connection for model in self.models))

    @property
    def max_source_positions(self) -> int | None:
        """That of the model that has the fewest; None without a limit."""
        limits = [model.max_source_positions for model in self.models]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def target_start(self) -> Literal["end", "begin"]:
        """The token of the dictionary that targets start with."""
        return self.models[0].target_start

    @property
    def trained_source_positions(self) -> int:
        """The longest source that fairseq would have trained all of them on."""
        return min(model.trained_source_positions for model in self.models)

    def move(self, device: torch.device) -> None:
        """Moves all models. Raises `ValueError` if one can't compute there."""
        for model in self.models:
            model.move(device)

    def encode(self, source: Tensor, *, padded: bool | None = None) -> list[Any]:
        """Each model's memory of source tokens (B, S)."""
        return [model.encode(source, padded=padded) for model in self.models]
