"""The model that `rskip analyse` examines, its examples, and their losses. B: batch, T: positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from rskip.settings.check import check
from rskip.settings.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor, nn


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an analysis. The description of each field is also the help of its flag."""

    examples: Annotated[
        int, Meta(ge=1, description="number of random examples, the same for every model; the papers use 10,000")
    ] = 128
    seed: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="random seed for the examples and for newly initialised models")
    ] = 1
    split: Annotated[str, Meta(description="split that the examples are from, without augmentation")] = "train"
    data: Annotated[
        str | None,
        Meta(
            description="folder of images, or of a prepared corpus (default for images: as `rskip vision train`); for "
            "a Hugging Face folder a text file (default: random tokens)",
            extra={"metavar": "PATH"},
        ),
    ] = None
    download: Annotated[bool, Meta(description="download images that are missing or damaged")] = False
    batch_size: Annotated[int, Meta(ge=1, description="examples per batch; batch statistics are over one batch")] = 64
    batch_norm: Annotated[
        Literal["batch", "evaluation"] | None,
        Meta(
            description="statistics for batch normalisation: those of the batch, or the running ones (default: batch "
            "for newly initialised models, evaluation for trained models)"
        ),
    ] = None

    shortcut_input: Annotated[
        Literal["raw", "activated"] | None,
        Meta(description="input of the zero-padded shortcuts of a new PreAct-ResNet (default: raw)"),
    ] = None

    def __post_init__(self) -> None:
        check(self)

    def choose(self, count: int, of: str) -> list[int]:
        """Draws `examples` different indices below `count` with the seed.

        :param of: the dataset that has `count` examples, as an error names it.
        :raises SettingError: the dataset has fewer examples than `examples`.
        """
        import torch

        if self.examples > count:
            raise SettingError.of_value("examples", self.examples, f"at most {count:,}, which is all of {of}")
        generator = torch.Generator().manual_seed(self.seed)
        chosen: list[int] = torch.randperm(count, generator=generator)[: self.examples].tolist()
        return chosen


class NotAnalysable(ValueError):
    """Raised for a model that its task can load but not analyse."""


@dataclass(frozen=True)
class Batch:
    """A batch of examples.

    losses: runs the model and returns the loss of each example, in nats. Shape: (B).
    masks: per stage, true at positions that are not padding: (B, T). A stage without a mask has no padding.
    """

    losses: Callable[[], Tensor]
    masks: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The model under analysis.

    label: its name in tables and figures: the connection of a new model, or the name of a trained model.
    depth: layers of a PreAct-ResNet, or of each stack of a Transformer.
    model: float32, on the CPU, in evaluation mode, with unpacked linear maps. Its parameters require gradients.
    data: the dataset of the examples, such as `cifar10`, without a path of this machine.
    batches: `batches(conditions)` reads and yields the examples.
    splits: whether the examples are from the split of the conditions.
    """

    label: str
    depth: int
    model: nn.Module
    trained: bool
    data: str
    batches: Callable[[Conditions], Iterator[Batch]]
    splits: bool = True
