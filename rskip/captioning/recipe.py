"""The settings of a captioning run in its recipe. The result depends on all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from rskip.captioning.options import DETECTORS, FeatureSettings
from rskip.captioning.preparation import CaptionOptions
from rskip.corpora import find_caption_corpus
from rskip.generation import SearchOptions
from rskip.settings.check import to_plain
from rskip.settings.errors import SettingError
from rskip.tasks.fairseq.flags import Flag, Flags
from rskip.tasks.fairseq.recipe import check_training

CONSTANT = "constant"
"""A backbone that sees nothing: every image has the same feature."""

_FEATURES_KEYS = tuple(FeatureSettings.__dataclass_fields__)
_SET_BY_A_RUN = {
    "task": "it is always captioning",
    "features": "use features.backbone or features.store",
    "user-dir": "it is always rskip",
    "finetune-from-model": "self_critical starts from the final checkpoint of train",
    "no-save": "scoring needs a checkpoint",
    "keep-last-epochs": "the last and the best are kept",
    "eval-cider": "set `checkpoint` instead",
    "best-checkpoint-metric": "set `checkpoint` instead",
    "maximize-best-checkpoint-metric": "set `checkpoint` instead",
}


class FeaturesOf(msgspec.Struct, frozen=True, kw_only=True):
    """The features of the images.

    :param backbone: a network of `rskip caption extract`, used once for all variants; "constant": the same single
        feature for each image.
    :param weights: file of its weights.
    :param store: an existing folder of features, instead of a backbone.
    """

    backbone: str | None = None
    weights: str | None = None
    store: str | None = None
    size: int | None = None
    regions: int | None = None
    dtype: Literal["float16", "float32"] | None = None

    def __post_init__(self) -> None:
        if (self.backbone is None) == (self.store is None):
            raise SettingError("", "needs a backbone or a store", expected="one of them")
        if self.given and not self.extracted:
            raise SettingError(next(iter(self.given)), "is for a backbone that extracts", advice="leave it out")
        if self.backbone == "bottom-up":
            raise SettingError("backbone", "bottom-up features are published, not extracted", advice="give their store")
        unused = "size" if self.backbone in DETECTORS else "regions"
        if unused in self.given:
            raise SettingError(unused, f"is not for {self.backbone}", advice="leave it out")
        self.extraction  # noqa: B018  (checks the values)

    @property
    def extracted(self) -> bool:
        """Whether a backbone extracts the features."""
        return self.backbone not in (None, CONSTANT)

    @property
    def given(self) -> dict[str, Any]:
        """The options of the backbone that differ from its defaults."""
        options = {name: getattr(self, name) for name in ("weights", *_FEATURES_KEYS)}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def extraction(self) -> FeatureSettings:
        """Settings of the features that the backbone computes."""
        return FeatureSettings(**{name: value for name, value in self.given.items() if name != "weights"})


class EvaluateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The split that is captioned and scored."""

    split: Literal["valid", "test"] = "test"


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the search.

    :param max_length: maximum words per caption.
    :param unknown: whether captions may contain the unknown word.
    """

    beam: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4
    length_penalty: Annotated[float, msgspec.Meta(ge=-20, le=20)] = 1.0
    max_length: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 30
    no_repeat_ngram: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    unknown: bool = False

    def options(self) -> SearchOptions:
        """The settings as options of the search."""
        return SearchOptions(
            beam=self.beam,
            length_penalty=self.length_penalty,
            max_length_b=self.max_length,
            no_repeat_ngram=self.no_repeat_ngram,
            unknown_penalty=0.0 if self.unknown else float("inf"),
        )


class CaptioningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one captioning run.

    :param corpus: a corpus of `rskip prepare`.
    :param prepare: options of its preparation.
    :param train: flags of fairseq-train without the leading dashes, with `arch`. A flag that is true is given without a
        value; a flag that is false or null is left out.
    :param self_critical: flags of a second stage, self-critical sequence training, which starts from the final
        checkpoint of the first; null: no second stage.
    :param checkpoint: the scored checkpoint: "best" by CIDEr on the validation images (greedy captions), or "last".
    :param generate: settings of the search.
    :raises SettingError: a value is wrong, or two values contradict each other.
    """

    corpus: Annotated[str, msgspec.Meta(min_length=1, extra={"expected": "a name such as flickr8k"})]
    prepare: CaptionOptions = CaptionOptions()
    features: FeaturesOf
    train: Flags
    self_critical: Flags | None = None
    checkpoint: Literal["best", "last"] = "best"
    generate: SearchSettings = SearchSettings()
    evaluate: EvaluateSettings = EvaluateSettings()

    def __post_init__(self) -> None:
        find_caption_corpus(self.corpus)
        for section, flags in self.stages().items():
            architecture = "captioning_transformer_rskip_ln_tiny"
            check_training(section, flags, refused=_SET_BY_A_RUN, architecture=architecture)

    def stages(self) -> dict[str, Mapping[str, Flag]]:
        """The flags of each training stage, in order."""
        if self.self_critical is None:
            return {"train": self.train}
        second = {**self.train, "criterion": "self_critical", **self.self_critical}
        return {"train": self.train, "self_critical": second}

    def to_plain(self) -> dict[str, Any]:
        """Everything that determines the result, as plain JSON values."""
        plain: dict[str, Any] = to_plain(self)
        plain["features"] = {name: value for name, value in plain["features"].items() if value is not None}
        if plain["self_critical"] is None:
            del plain["self_critical"]
        return plain
