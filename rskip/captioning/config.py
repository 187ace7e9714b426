"""The hyper-parameters of a captioning Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Size
from rskip.transformer.config import StackConfig

# What may differ between the features that a model was trained on and those that it is given.
_FREE = ("format", "dtype", "names")


@dataclass(frozen=True)
class CaptioningConfig(StackConfig):
    """Everything that decides a captioning Transformer's shape: `StackConfig`, the features it reads, its words.

    vocabulary: symbols of the dictionary, special ones included.
    feature_dim: numbers of an image feature.
    grid_positions: the features are cells of a grid and get 2-D positions; regions get none.
    features: what the features were made with, `FeatureStore.description`.
    """

    vocabulary: Size
    feature_dim: Size
    grid_positions: bool = True
    features: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocabulary <= self.padding_index:
            raise self._wrong("vocabulary", f"more than padding_index, {self.padding_index}")
        if self.grid_positions and self.encoder_embed_dim % 4:
            raise self._wrong("encoder_embed_dim", "a multiple of 4, for the positions of a grid")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CaptioningConfig:
        """The configuration that `to_dict` gave.

        :raises SettingError: a value of another type, or an unknown key; the nearest known one is named.
        """
        return convert(values, cls)

    def check_features(self, description: Mapping[str, Any]) -> None:
        """Refuses features that are made with something else than those that the model was trained on.

        :param description: `FeatureStore.description`, or a backbone's.
        :raises SettingError: another backbone, dimension, or anything else that decides the numbers; both are named.
        """
        own = {"dim": self.feature_dim, **self.features}
        for key in ("backbone", "dim", *sorted(own.keys() | description.keys())):
            if key not in _FREE and key in own and own[key] != description.get(key):
                raise SettingError(
                    f"features ({key})",
                    f"are of {description.get(key)!r}",
                    expected=f"those that the model was trained on, of {own[key]!r}",
                )
