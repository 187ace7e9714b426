"""The hyper-parameters of a captioning Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Size
from rskip.transformer.config import StackConfig

# Keys that may differ between the features of the training and those of the input.
_FREE = ("format", "dtype", "names")


@dataclass(frozen=True)
class CaptioningConfig(StackConfig):
    """The hyper-parameters of a captioning Transformer: `StackConfig`, its features, and its vocabulary.

    vocabulary: size of the dictionary, including special symbols.
    feature_dim: dimension of an image feature.
    grid_positions: whether the features are cells of a grid, which get 2-D positions; regions get none.
    features: description of the features, from `FeatureStore.description`.
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
        """Makes the configuration from the result of `to_dict`."""
        return convert(values, cls)

    def check_features(self, description: Mapping[str, Any]) -> None:
        """Checks that features were made in the same way as those of the model's training.

        :param description: `FeatureStore.description`, or that of a backbone.
        :raises SettingError: the backbone, dimension, or another key differs. Names both values.
        """
        own = {"dim": self.feature_dim, **self.features}
        for key in ("backbone", "dim", *sorted(own.keys() | description.keys())):
            if key not in _FREE and key in own and own[key] != description.get(key):
                expected = f"{own[key]!r}, as in the model's training"
                raise SettingError.of_value(f"features ({key})", description.get(key), expected)
