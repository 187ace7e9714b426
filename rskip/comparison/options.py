"""The settings of a comparison. The description of each field is also the help of its flag."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rskip.settings.check import check
from rskip.settings.kinds import Count, Layers, Positive, Size


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How much a comparison does."""

    minutes: Annotated[Positive, Meta(description="time for all runs, on this machine; it decides their length")] = 60.0
    updates: Annotated[
        Count | None, Meta(description="updates of each run, in place of --minutes", extra={"metavar": "N"})
    ] = None
    seeds: Annotated[
        int, Meta(ge=2, le=99, description="random seeds per connection, each an initialisation and order of the data")
    ] = 3

    def __post_init__(self) -> None:
        check(self)


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The model's size and its batches."""

    layers: Annotated[
        Layers | None, Meta(description="layers of gpt2 or llama (default: as many as the time allows)")
    ] = None
    features: Annotated[
        Size | None, Meta(description="features of gpt2 or llama (default: as many as the time allows)")
    ] = None
    heads: Annotated[Size | None, Meta(description="heads of gpt2 or llama (default: one per 32 features)")] = None
    context: Annotated[Count, Meta(description="tokens of a text that the model reads at once")] = 64
    image_size: Annotated[
        Annotated[int, Meta(ge=16, le=1024)] | None,
        Meta(description="pixels per side of images (default: by their sizes)"),
    ] = None
    batch_size: Annotated[
        Count | None, Meta(description="sequences or images per update (default: 12 sequences, 64 images)")
    ] = None
    precision: Annotated[
        Literal["float32", "bfloat16"], Meta(description="bfloat16: autocast, parameters stay float32")
    ] = "float32"
    blocks: Annotated[
        str | None, Meta(description="name of the module that contains the blocks, as for `rskip adapt`")
    ] = None
    loss: Annotated[
        str | None,
        Meta(description="MODULE:FUNCTION, the mean loss of (model, batch) (default: the model's, or cross-entropy)"),
    ] = None

    def __post_init__(self) -> None:
        check(self)
