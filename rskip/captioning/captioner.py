"""`Captioner`: turns images into captions. B images, N features per image, T words per caption."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rskip.captioning.backbones import Backbone, backbone_of
from rskip.captioning.captions import DICTIONARY
from rskip.captioning.features import Features
from rskip.captioning.model import CaptioningTransformer, batch_features, search_captions
from rskip.captioning.model_file import load_captioning_model, load_words, read_captioning_checkpoint
from rskip.captioning.options import CAPTION_OPTIONS, ImageBatchSettings
from rskip.checkpoint.config_file import WEIGHTS, checkpoint_sha256
from rskip.cpu import CpuTransformer, for_inference
from rskip.generation import Hypothesis, SearchOptions
from rskip.machine.device import usable_device
from rskip.machine.torch_errors import memory_as_mistake
from rskip.text import Dictionary


@dataclass(frozen=True)
class CaptionHypothesis:
    """A caption of an image. Values that were not requested are None.

    score: log-probability divided by the length penalty, including the end token.
    tokens: (T) words.
    token_scores: (T + 1) log-probability of each word and of the end token.
    attention: (T + 1, N) attention of each word and of the end token over the image's features.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...] | None = None
    attention: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Caption:
    """The captions of one image, at least one, the best first.

    grid: rows and columns of the image's features; None: regions.
    """

    hypotheses: tuple[CaptionHypothesis, ...]
    grid: tuple[int, int] | None

    @property
    def text(self) -> str:
        """The best caption."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best caption's score."""
        return self.hypotheses[0].score


class UnreadableImage(ValueError):
    """Raised for an image that can't be read.

    number: its number among the given images, from 1.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"image {number}: {reason}")
        self.number = number


class Captioner:
    """A captioning model with its dictionary and the backbone that computes its features::

        captioner = Captioner.from_pretrained("model")
        captioner("photo.jpg")

    :param model: the model, in evaluation mode and on its device.
    :param dictionary: the words.
    :param backbone: returns the backbone, called for the first image; features don't need it.

    path, sha256: the file of the weights and its checksum, if there was one.
    """

    def __init__(
        self,
        model: CaptioningTransformer | CpuTransformer,
        dictionary: Dictionary,
        *,
        backbone: Callable[[], Backbone],
    ) -> None:
        self.model, self.dictionary = model, dictionary
        self._load_backbone = backbone
        self._backbone: Backbone | None = None
        self.path: Path | None = None
        self.sha256 = ""

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        dictionary: str | os.PathLike[str] | None = None,
        backbone_weights: str | os.PathLike[str] | None = None,
        precision: str = "float32",
        device: str | torch.device = "cpu",
    ) -> Captioner:
        """Loads published weights, or a checkpoint of fairseq.

        :param path: the folder of config.json, model.safetensors and dict.txt, one of these files, or a .pt file.
        :param dictionary: for a .pt file, its dict.txt or the folder of dict.txt; default: the folder of the file.
        :param backbone_weights: file of the backbone's weights; default: see `rskip.captioning.backbones`.
        :param precision: precision of the model, as for `Translator.from_pretrained`. The backbone computes in float32.
        :raises FileNotFoundError: the model or the dictionary is missing.
        :raises ValueError: a file is damaged, the device doesn't exist, or the precision is unknown.
        """
        path, device = Path(path), usable_device(device)
        weights = None if backbone_weights is None else Path(backbone_weights)
        if path.suffix == ".pt":
            file, model = path, read_captioning_checkpoint(path).to(device)
            given = path.parent if dictionary is None else Path(dictionary)
            words_file = given / DICTIONARY if given.is_dir() else given
            if not words_file.is_file():
                raise FileNotFoundError(
                    f"no dictionary {words_file}: give the {DICTIONARY} of the model's data, or its folder, with "
                    "--dictionary (in Python dictionary=)"
                )
            words = load_words(words_file, model.config)
        else:
            folder = path.parent if path.is_file() else path
            if dictionary is not None:
                raise ValueError(f"{folder} has its own {DICTIONARY}: --dictionary is only for a .pt file")
            file = folder / WEIGHTS
            model, words = load_captioning_model(folder, device)
        description = model.config.features
        model = for_inference(model, precision)
        captioner = cls(model, words, backbone=lambda: backbone_of(description, weights, device=device))
        captioner.path, captioner.sha256 = file, checkpoint_sha256(file)
        return captioner

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.device

    @property
    def backbone(self) -> Backbone:
        """The backbone that computes features of images, loaded on first use.

        :raises ValueError: the backbone can't be loaded, or its features differ from those of the model's training.
        """
        if self._backbone is None:
            name = self.model.config.features.get("backbone")
            if name in (None, "bottom-up", "constant"):
                kind = f"{name or 'unknown'} features"
                raise ValueError(f"the model reads {kind}, which rskip can't compute from images: give it features")
            backbone = self._load_backbone()
            self.model.config.check_features(backbone.description)
            self._backbone = backbone
        return self._backbone

    def __call__(self, images: Any, **settings: Any) -> Any:
        """Returns the best caption of an image, or a list of the best captions of a list of images.

        :param images: an image as for `caption`, or a list of images.
        :param settings: as for `caption`.
        """
        if isinstance(images, (list, tuple)):
            return [caption.text for caption in self.caption(images, **settings)]
        return self.caption([images], **settings)[0].text

    def caption(
        self,
        images: Sequence[Any],
        options: SearchOptions = CAPTION_OPTIONS,
        *,
        batch_size: int = 16,
        **settings: Any,
    ) -> list[Caption]:
        """Returns the captions of images, in the same order.

        :param images: paths, open binary files, PIL images, or `Features` of the kind that the model was trained on.
        :param options: options of the search.
        :param batch_size: images per batch.
        :param settings: fields of `SearchOptions` to change, such as `beam=8, nbest=3`.
        :raises UnreadableImage: an image can't be read.
        :raises ValueError: settings are wrong, features have another length or kind, or the backbone is missing.
        """
        options = options.changed(settings, further=["batch_size"])
        if isinstance(images, (str, os.PathLike)):
            raise ValueError("expected a list of images, got one image: use caption([image]), or captioner(image)")
        ImageBatchSettings(batch_size=batch_size)  # checks it
        found: list[Caption] = []
        for start in range(0, len(images), batch_size):
            read = self.read(images[start : start + batch_size])
            for number, each in enumerate(read, start=start + 1):
                if isinstance(each, Exception):
                    raise UnreadableImage(number, str(each))
            part = options.of_part(start // batch_size)
            found += self.search([each for each in read if isinstance(each, Features)], part)
        return found

    def read(self, images: Sequence[Any]) -> list[Features | Exception]:
        """The features of each image, or its error."""
        unread = [each for each in images if not isinstance(each, Features)]
        found = iter(self.backbone.features(unread) if unread else ())
        return [each if isinstance(each, Features) else next(found) for each in images]

    def search(self, features: Sequence[Features], options: SearchOptions) -> list[Caption]:
        """Captions one batch.

        :raises ValueError: features have another length or kind than the model's, or memory runs out.
        """
        if not features:
            return []
        config = self.model.config
        for each in features:
            if each.values.shape[1] != config.feature_dim:
                raise ValueError(
                    f"features of {each.values.shape[1]:,} numbers, but the model was trained on "
                    f"{config.feature_dim:,}: give features from {config.features.get('backbone', 'its backbone')}"
                )
        with memory_as_mistake(f" for {len(features)} images: give a smaller batch_size"):
            found = search_captions(self.model, *batch_features(features), options)
        return [
            Caption(tuple(self._hypothesis(one, len(each.values)) for one in hypotheses), each.grid)
            for hypotheses, each in zip(found, features, strict=True)
        ]

    def _hypothesis(self, found: Hypothesis, count: int) -> CaptionHypothesis:
        indices = found.tokens.tolist()[:-1]
        return CaptionHypothesis(
            text=self.dictionary.decode(indices),
            score=found.score,
            tokens=tuple(self.dictionary.tokens[index] for index in indices),
            token_scores=None if found.token_scores is None else tuple(found.token_scores.tolist()),
            attention=None if found.attention is None else found.attention[:, :count],
        )
