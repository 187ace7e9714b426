"""`--task captioning`: trains on captioned images whose features were extracted before."""

# fairseq reads a configuration's types themselves, not their names: no postponed annotations here.
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from fairseq import metrics
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from torch import nn

from fairseq_compat.one_line_errors import UsageError
from rskip.captioning.captions import DICTIONARY, CaptionedImage, read_split
from rskip.captioning.cider import CiderD
from rskip.captioning.features import ConstantFeatures, FeatureStore, open_features
from rskip.captioning.model import batch_features, search_captions
from rskip.fairseq_plugin.generator import Transformers
from rskip.fairseq_plugin.usage_errors import usage_errors
from rskip.generation import Hypothesis, SearchOptions, SpecialTokens

TASK_NAME = "captioning"

logger = logging.getLogger(__name__)


@dataclass
class CaptioningTaskConfig(FairseqDataclass):
    """Flags of the task."""

    data: Optional[str] = field(  # noqa: UP045
        default=None, metadata={"help": "folder of captions, such as `rskip prepare flickr8k` makes"}
    )
    features: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata={
            "help": "store of image features (`rskip caption extract`), or 'constant': the same feature for every "
            "image, as a baseline that sees no image"
        },
    )
    eval_cider: bool = field(
        default=False,
        metadata={
            "help": "report CIDEr-D of captions of the validation images, for --best-checkpoint-metric cider "
            "--maximize-best-checkpoint-metric"
        },
    )
    eval_cider_beam: int = field(default=1, metadata={"help": "beam of --eval-cider; 1 is greedy search"})
    max_caption_tokens: int = field(
        default=30, metadata={"help": "maximum length of captions in --eval-cider and self-critical training"}
    )


class CaptionExamples(FairseqDataset):
    """Examples of one image with all its captions, so that its features are read and encoded only once.

    :param images: images with captions; all have features.
    :param features: the store, read on access.
    :param shuffled: whether examples of the same size are in random order.
    """

    def __init__(
        self,
        images: Sequence[CaptionedImage],
        features: FeatureStore | ConstantFeatures,
        dictionary: Dictionary,
        *,
        shuffled: bool,
    ) -> None:
        self.images, self.features, self.dictionary, self.shuffled = images, features, dictionary, shuffled
        self.names = {each.name for each in images}
        self.tokens = [
            [dictionary.encode_line(caption, add_if_not_exist=False).long() for caption in image.tokens]
            for image in images
        ]
        self.sizes = np.array([max(map(len, each)) for each in self.tokens])  # of an image's longest caption
        self.token_counts = self.sizes * np.array([len(each) for each in self.tokens])  # padding included

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return len(self.images)

    def collater(self, samples: list[int]) -> dict[str, Any]:
        """Makes a batch: features (B, N, C), and the captions of all images (captions, T), padded on the right.

        `counts` (B,) is the number of captions per image; the captions of an image are in sequence.
        """
        if not samples:
            return {}
        names = [self.images[index].name for index in samples]
        features, padding, grids = batch_features([self.features[name] for name in names])
        captions = [caption for index in samples for caption in self.tokens[index]]
        return {
            "id": torch.tensor(samples),
            "names": names,
            "nsentences": len(captions),
            "ntokens": sum(len(each) for each in captions),
            "net_input": {
                "features": features,
                "padding_mask": padding,
                "grids": grids,
                "prev_output_tokens": self._batched(captions, prefix=True),
                "counts": torch.tensor([len(self.tokens[index]) for index in samples]),
            },
            "target": self._batched(captions),
        }

    @cached_property
    def cider(self) -> CiderD:
        """The scorer for captions of these images, built on first use."""
        return CiderD({each.name: [caption.split() for caption in each.tokens] for each in self.images})

    def _batched(self, captions: list[torch.Tensor], *, prefix: bool = False) -> torch.Tensor:
        pad, end = self.dictionary.pad(), self.dictionary.eos()
        return data_utils.collate_tokens(captions, pad, end, move_eos_to_beginning=prefix)

    def num_tokens(self, index: int) -> int:
        return int(self.token_counts[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        return self.token_counts[indices]

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def ordered_indices(self) -> np.ndarray:
        """The order of examples: by size, and random among equal sizes."""
        order = np.random.permutation(len(self)) if self.shuffled else np.arange(len(self))
        return order[np.argsort(self.token_counts[order], kind="stable")]


@register_task(TASK_NAME, dataclass=CaptioningTaskConfig)
class CaptioningTask(FairseqTask):
    """Image captioning over stored features. Captions are searched by rskip's beam search."""

    cfg: CaptioningTaskConfig

    def __init__(
        self, cfg: CaptioningTaskConfig, dictionary: Dictionary, features: FeatureStore | ConstantFeatures
    ) -> None:
        super().__init__(cfg)
        self.dictionary, self.features = dictionary, features
        self._transformers = Transformers()

    @classmethod
    def setup_task(cls, cfg: CaptioningTaskConfig, **kwargs: Any) -> "CaptioningTask":
        """Opens the dictionary and the features. Raises `UsageError` if they are missing or damaged."""
        if not cfg.features:
            raise UsageError("--features is missing: give a store from `rskip caption extract`, or constant")
        if cfg.data is None or not (path := Path(cfg.data, DICTIONARY)).is_file():
            raise UsageError(f"no captions in {cfg.data}: give a folder from `rskip prepare`, such as that of flickr8k")
        named = {"beam": "eval_cider_beam", "max_length_b": "max_caption_tokens"}
        with usage_errors((ValueError, OSError), named=named):
            SearchOptions(beam=cfg.eval_cider_beam, max_length_b=cfg.max_caption_tokens)  # checks the flags
            return cls(cfg, cls.load_dictionary(str(path)), open_features(cfg.features))

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Reads the captions of a split. Skips images without features, and counts them."""
        assert self.cfg.data is not None
        with usage_errors((ValueError, OSError)):
            images = read_split(Path(self.cfg.data), split)
        known = [each for each in images if each.name in self.features]
        missing = next((each.name for each in images if each.name not in self.features), None)
        if not known:
            raise UsageError(f"{self.cfg.features} has features of no image of {split}, such as {missing}")
        if missing is not None:
            left_out = f"{len(images) - len(known):,} of {len(images):,} images"
            logger.warning(f"{split}: {left_out} have no features and are left out, such as {missing}")
        self.datasets[split] = CaptionExamples(known, self.features, self.dictionary, shuffled=split != "test")

    @property
    def source_dictionary(self) -> None:
        """None: captioning has no source dictionary."""
        return None

    @property
    def target_dictionary(self) -> Dictionary:
        """The dictionary of the captions."""
        return self.dictionary

    def features_of_model(self) -> dict[str, Any]:
        """The part of a `CaptioningConfig` that the features determine."""
        first = self.features.names[0] if isinstance(self.features, FeatureStore) else ""
        return {
            "feature_dim": self.features.dim,
            "grid_positions": self.features[first].grid is not None,
            "features": dict(self.features.description),
        }

    def valid_step(self, sample: dict[str, Any], model: nn.Module, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Computes the loss, and with --eval-cider the CIDEr-D of one caption per image."""
        loss, sample_size, logging_output = super().valid_step(sample, model, criterion)
        if self.cfg.eval_cider:
            scores = self.score_captions(sample, model, SearchOptions(beam=self.cfg.eval_cider_beam))
            logging_output |= {"_cider_sum": float(scores.sum()), "_cider_count": len(scores)}
        return loss, sample_size, logging_output

    def score_captions(self, sample: Mapping[str, Any], model: nn.Module, options: SearchOptions) -> np.ndarray:
        """CIDEr-D of the best caption found for each image of a batch. Shape: (B,)"""
        found = self.search(sample, model, options)
        return self.rewards(sample["names"], [best.tokens for best, *_ in found])

    def search(self, sample: Mapping[str, Any], model: Any, options: SearchOptions) -> list[list[Hypothesis]]:
        """Searches captions of at most --max-caption-tokens words for each image of a batch."""
        inputs = sample["net_input"]
        while hasattr(model, "module"):  # of DistributedDataParallel
            model = model.module
        return search_captions(
            self._transformers.of(model),
            inputs["features"],
            inputs["padding_mask"],
            inputs["grids"],
            replace(options, max_length_a=0.0, max_length_b=self.cfg.max_caption_tokens),
            SpecialTokens.of(self.dictionary),
        )

    def rewards(self, names: Sequence[str], captions: Sequence[torch.Tensor]) -> np.ndarray:
        """CIDEr-D of captions against the references of the first image's split. Shape: (captions,)"""
        split = next(each for each in self.datasets.values() if names[0] in each.names)
        end = self.dictionary.eos()
        words = [[self.dictionary[token] for token in each.tolist() if token != end] for each in captions]
        return split.cider.score(names, words)

    def build_generator(self, *_: Any, **__: Any) -> None:
        """Raises an error: fairseq-generate supports only one target per example."""
        raise UsageError("--task captioning only trains and validates: caption images with rskip caption")

    def reduce_metrics(self, logging_outputs: Sequence[Mapping[str, Any]], criterion: Any) -> None:
        """Also logs the mean CIDEr-D over all images."""
        super().reduce_metrics(logging_outputs, criterion)
        if any("_cider_count" in each for each in logging_outputs):
            for key in ("_cider_sum", "_cider_count"):
                metrics.log_scalar(key, sum(float(each.get(key, 0)) for each in logging_outputs))
            metrics.log_derived("cider", _mean_cider)

    def max_positions(self) -> None:
        """None: the task has no limit."""
        return None


def _mean_cider(meters: Mapping[str, Any]) -> float:
    count = meters["_cider_count"].sum
    return round(meters["_cider_sum"].sum / count, 4) if count else 0.0
