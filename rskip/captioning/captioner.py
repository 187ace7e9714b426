"""Images in, captions out. B images, N features of an image, T words of a caption."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rskip.captioning.backbones import Backbone, backbone_of
from rskip.captioning.captions import DICTIONARY
from rskip.captioning.features import Features
from rskip.captioning.model import CaptioningTransformer, batch_features
from rskip.captioning.model_file import load_captioning_model, load_words, read_captioning_checkpoint
from rskip.captioning.options import CAPTION_OPTIONS
from rskip.captioning.search import search_captions
from rskip.checkpoint.files import WEIGHTS, checkpoint_sha256
from rskip.cpu import CpuTransformer, for_inference
from rskip.files.images import read_picture
from rskip.generation import Hypothesis, SearchOptions
from rskip.machine.device import usable_device
from rskip.machine.torch_errors import out_of_memory
from rskip.settings.errors import SettingError
from rskip.text import Dictionary


@dataclass(frozen=True)
class CaptionHypothesis:
    """One caption of an image. What is None was not asked for.

    score: the log-probability over its length penalty, the end counted.
    tokens: (T) words.
    token_scores: (T + 1) each word's log-probability, the end's last.
    attention: (T + 1, N) each word's attention over the image's features, the end's last.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...] | None = None
    attention: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Caption:
    """The captions of one image, best first; there is at least one.

    grid: rows and columns of the features that were attended to; None: regions.
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


class PictureError(ValueError):
    """An image that can't be read.

    number: which of those that were given, from 1. reason: why not.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"image {number}: {reason}")
        self.number, self.reason = number, reason


class Captioner:
    """A captioning model with its words and with the backbone that makes the features that it was trained on::

        captioner = Captioner.from_pretrained("model")
        captioner("photo.jpg")

    :param model: on the device where it is to run, in evaluation mode.
    :param dictionary: the words.
    :param backbone: gives the backbone when an image is read first; features need none.
    :param options: how captions are searched for, where nothing else is asked for.

    sha256: of the weights' file, where the model was read from one.
    """

    def __init__(
        self,
        model: CaptioningTransformer | CpuTransformer,
        dictionary: Dictionary,
        *,
        backbone: Callable[[], Backbone],
        options: SearchOptions = CAPTION_OPTIONS,
    ) -> None:
        self.model, self.dictionary, self.options = model, dictionary, options
        self._load_backbone = backbone
        self._backbone: Backbone | None = None
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
        """The captioner of published weights, or of a checkpoint that fairseq wrote.

        :param path: the folder of config.json, model.safetensors and dict.txt, one of these files, or a .pt file.
        :param dictionary: of a .pt file: its dict.txt or the folder of it; default: beside the file.
        :param backbone_weights: a file of the backbone's weights; default: see `rskip.captioning.backbones`.
        :param precision: of the model, as `Translator.from_pretrained` has it; the backbone computes in float32.
        :raises FileNotFoundError: no model there, or no words.
        :raises ValueError: damaged files, no such device, an unknown precision.
        """
        path, device = Path(path), usable_device(device)
        weights = None if backbone_weights is None else Path(backbone_weights)
        if path.suffix == ".pt":
            file, model = path, read_captioning_checkpoint(path).to(device)
            beside = path.parent if dictionary is None else Path(dictionary)
            words = load_words(beside / DICTIONARY if beside.is_dir() else beside, model.config)
        else:
            folder = path.parent if path.is_file() else path
            file = folder / WEIGHTS
            model, words = load_captioning_model(folder, device)
        description = model.config.features
        model = for_inference(model, precision)
        captioner = cls(model, words, backbone=lambda: backbone_of(description, weights, device=device))
        captioner.sha256 = checkpoint_sha256(file)
        return captioner

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def backbone(self) -> Backbone:
        """What makes the features of images; loaded when it is first asked for.

        :raises ValueError: it can't be had, or makes other features than those that the model was trained on.
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

    def __call__(self, pictures: Any, **settings: Any) -> Any:
        """The best caption of one image, or a list of those of a list of images.

        :param images: one or a list of what `caption` takes.
        :param settings: those of `caption`.
        """
        if isinstance(pictures, (list, tuple)):
            return [caption.text for caption in self.caption(pictures, **settings)]
        return self.caption([pictures], **settings)[0].text

    def caption(
        self,
        pictures: Sequence[Any],
        options: SearchOptions | None = None,
        *,
        batch_size: int = 16,
        **settings: Any,
    ) -> list[Caption]:
        """Captions of images, in their order.

        :param images: paths, open binary files, PIL images, or `Features` of the kind that the model was trained on.
        :param options: how to search; default: `self.options`.
        :param batch_size: images at a time.
        :param settings: fields of `SearchOptions` to change, such as `beam=8, nbest=3`.
        :raises PictureError: something that is no image.
        :raises ValueError: settings that make no sense; features of another length or kind; a backbone that is missing.
        """
        options = (self.options if options is None else options).changed(settings, beside=["batch_size"])
        if isinstance(pictures, (str, os.PathLike)):
            raise ValueError("expected a list of images, got one image: use caption([image]), or captioner(image)")
        if batch_size < 1:
            raise SettingError.of_value("batch_size", batch_size, "1 or more")
        found: list[Caption] = []
        for start in range(0, len(pictures), batch_size):
            read = self.read(pictures[start : start + batch_size])
            for number, each in enumerate(read, start=start + 1):
                if isinstance(each, PictureError):
                    raise PictureError(number, each.reason)
            found += self.search([each for each in read if isinstance(each, Features)], options)
        return found

    def read(self, pictures: Sequence[Any]) -> list[Features | PictureError]:
        """Each image's features, or why there are none. Two threads decode; one batch is computed."""
        unread = [each for each in pictures if not isinstance(each, Features)]
        if not unread:
            return list(pictures)
        backbone = self.backbone

        def prepare(picture: Any) -> Any:
            try:
                return backbone.prepare(read_picture(picture))
            except (ValueError, OSError) as error:
                return error

        with ThreadPoolExecutor(2) as readers:
            prepared = list(readers.map(prepare, unread))
        computed = iter(backbone.compute([each for each in prepared if not isinstance(each, Exception)]))
        made: Iterator[Features | PictureError] = (
            PictureError(number, str(each)) if isinstance(each, Exception) else next(computed)
            for number, each in enumerate(prepared, start=1)
        )
        return [each if isinstance(each, Features) else next(made) for each in pictures]

    def search(self, features: Sequence[Features], options: SearchOptions) -> list[Caption]:
        """Captions of one batch.

        :raises ValueError: features of another length or kind than the model's, or not enough memory.
        """
        if not features:
            return []
        config = self.model.config
        for each in features:
            if each.values.shape[1] != config.feature_dim:
                raise ValueError(
                    f"features of {each.values.shape[1]:,} numbers, and the model was trained on "
                    f"{config.feature_dim:,}: give those of {config.features.get('backbone', 'its backbone')}"
                )
        try:
            found = search_captions(self.model, *batch_features(features), options)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise ValueError(f"not enough memory for {len(features)} images: give a smaller batch_size") from error
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


def load_published(folder: Path, *, precision: str, device: torch.device) -> Captioner:
    """The model of a published folder."""
    return Captioner.from_pretrained(folder, precision=precision, device=device)
