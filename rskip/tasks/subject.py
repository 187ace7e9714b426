"""What `rskip analyse` looks at: a model, the examples that it is given, and their losses. B batch, T positions."""

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
    """What a model is looked at with. Each field's description is the help of its flag too."""

    examples: Annotated[
        int, Meta(ge=1, description="random examples, the same for every model; the papers take 10,000")
    ] = 128
    seed: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="draws the examples, and the parameters of a connection's model")
    ] = 1
    split: Annotated[str, Meta(description="that the examples are of, without augmentation")] = "train"
    data: Annotated[
        str | None,
        Meta(
            description="folder of the images, or of a prepared corpus (default of images: as `rskip vision train`)",
            extra={"metavar": "FOLDER"},
        ),
    ] = None
    download: Annotated[bool, Meta(description="fetch the images where they are missing or damaged")] = False
    batch_size: Annotated[int, Meta(ge=1, description="examples at a time, which batch statistics are of")] = 64
    batch_norm: Annotated[
        Literal["batch", "evaluation"] | None,
        Meta(
            description="what batch normalisation divides by: the batch's statistics or the running ones (default: "
            "batch at initialisation, evaluation for trained models)"
        ),
    ] = None

    shortcut_input: Annotated[
        Literal["raw", "activated"] | None,
        Meta(description="what zero-padded shortcuts of a PreAct-ResNet at initialisation read (default: raw)"),
    ] = None

    def __post_init__(self) -> None:
        check(self)

    def choose(self, count: int, of: str) -> list[int]:
        """So many different numbers of examples below `count`, by the seed.

        :param of: what has `count` examples.
        :raises SettingError: it has fewer than are asked for.
        """
        import torch

        if self.examples > count:
            raise SettingError.of_value("examples", self.examples, f"at most {count:,}, which is all of {of}")
        generator = torch.Generator().manual_seed(self.seed)
        chosen: list[int] = torch.randperm(count, generator=generator)[: self.examples].tolist()
        return chosen


class NotAnalysable(ValueError):
    """A task reads the model, but can't analyse it."""


@dataclass(frozen=True)
class Batch:
    """Some examples.

    losses: takes them through the model and gives each one's loss, in nats. Shape: (B).
    masks: true where a position is no padding, by stage: (B, T). A stage without one has no padding.
    """

    losses: Callable[[], Tensor]
    masks: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to look inside.

    label: what tables and figures call it: the connection at initialisation, or the trained model's name.
    depth: of a PreAct-ResNet, or the layers of each of a Transformer's stacks.
    model: float32, on the CPU, in evaluation mode, its linear maps unpacked; its parameters require gradients.
    data: what the examples are of, such as `cifar10`, without any place on this machine.
    batches: `batches(conditions)` gives the examples; reads them when it is called.
    """

    label: str
    depth: int
    model: nn.Module
    trained: bool
    data: str
    batches: Callable[[Conditions], Iterator[Batch]]
