"""Options of features and captions. The types load without torch, since command-line flags are made of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from rskip.generation.options import SearchOptions
from rskip.settings.check import Checked

# the unknown word is never said
CAPTION_OPTIONS = SearchOptions(beam=4, max_length_a=0.0, max_length_b=30, unknown_penalty=math.inf)
# of torchvision; other backbones are classifiers of timm
DETECTORS = (
    "fasterrcnn_resnet50_fpn",
    "fasterrcnn_resnet50_fpn_v2",
    "fasterrcnn_mobilenet_v3_large_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn",
)
_Side = Annotated[int, Meta(ge=32, le=2048)]


@dataclass(frozen=True, kw_only=True)
class FeatureSettings(Checked):
    """Settings of the features that a backbone computes."""

    size: Annotated[
        _Side | None, Meta(description="pixels per side of resized images, for grids (default: the backbone's)")
    ] = None
    regions: Annotated[int, Meta(ge=1, le=1000, description="maximum regions per image, for a detector")] = 36
    dtype: Annotated[Literal["float16", "float32"], Meta(description="number format of the features")] = "float16"


@dataclass(frozen=True, kw_only=True)
class ImageBatchSettings(Checked):
    """Settings of batches of images. They change features only in the last digits."""

    batch_size: Annotated[int, Meta(ge=1, le=1024, description="images per batch")] = 16
