"""The kinds of recipe that there are."""

from __future__ import annotations

from typing import Any

from rskip.experiments.kind import Kind
from rskip.experiments.translation_kind import TranslationKind
from rskip.experiments.vision_kind import VisionKind

KINDS: dict[str, Kind[Any]] = {"translation": TranslationKind(), "vision": VisionKind()}
