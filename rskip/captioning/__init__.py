"""Image captioning: turns image features into sentences with rskip's Transformer and beam search."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rskip.captioning.captioner import Captioner

__all__ = ["Captioner"]


def __getattr__(name: str) -> object:
    # Imported on first use: captions, scoring and command-line flags don't need torch, whose import takes a second.
    if name == "Captioner":
        from rskip.captioning.captioner import Captioner

        return Captioner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
