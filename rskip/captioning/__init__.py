"""Image captioning: turns image features into sentences with rskip's Transformer and beam search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.captioning.captioner import Captioner

__all__ = ["Captioner"]

__getattr__ = imported_on_use(__name__, {"Captioner": "captioner"})
