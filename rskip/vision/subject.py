"""Provides PreAct-ResNets and the images of datasets for `rskip analyse`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rskip.connections import ConnectionSpec, check_connection
from rskip.settings.errors import SettingError
from rskip.tasks.subject import Batch, Conditions, NotAnalysable, Subject
from rskip.vision import PreActResNet, preact_resnet
from rskip.vision.data import ImageSet, evaluation_batches, load_dataset
from rskip.vision.datasets import DATASETS
from rskip.vision.model_file import load_model
from rskip.vision.settings import OWN

DEPTH = 110  # as in the papers
DATASET = "cifar10"
SPLITS = ("train", "test")


def subject(model: ConnectionSpec | Path, *, depth: int | None, conditions: Conditions) -> Subject:
    """See `rskip.tasks.Work`."""
    network: Any
    if isinstance(model, Path):
        network, description = load_model(model)
        dataset = description.dataset
    else:
        dataset = DATASET
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(conditions.seed)
            shortcut_input = conditions.shortcut_input or "raw"
            network = preact_resnet(DEPTH if depth is None else depth, model, shortcut_input=shortcut_input).eval()
    if dataset == OWN:
        raise NotAnalysable(
            f"{model} was trained on your own images, which `rskip analyse` can't read: give a model of "
            f"{' or '.join(DATASETS)}, or a connection"
        )
    if isinstance(network, PreActResNet):
        check_connection(network.config["connection"], 1)  # analyses follow one stack, and each stage has its own
    network.to(memory_format=torch.channels_last)
    return Subject(
        label=model.name if isinstance(model, Path) else str(model),
        depth=network.config["depth"],
        model=network,
        trained=isinstance(model, Path),
        data=dataset,
        batches=partial(_batches, network, dataset),
    )


def _batches(model: PreActResNet, dataset: str, conditions: Conditions) -> Iterator[Batch]:
    if conditions.split not in SPLITS:
        raise SettingError.of_value("split", conditions.split, f"{' or '.join(SPLITS)}, which {dataset} has")
    images = _images(dataset, conditions.data, conditions.split, conditions.download)
    rows = torch.tensor(conditions.choose(len(images), f"{dataset}'s {conditions.split} images"))
    for batch in evaluation_batches(
        images.chosen(rows), batch_size=conditions.batch_size, device="cpu", channels_last=True
    ):
        yield Batch(partial(_losses, model, *batch))


@lru_cache(maxsize=1)  # several models use the same images
def _images(dataset: str, data: str | None, split: str, download: bool) -> ImageSet:
    return load_dataset(dataset, data, train=split == "train", download=download)


def _losses(model: PreActResNet, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(images), labels, reduction="none")
