"""Image captioning: image features to sentences, by the Transformer and the beam search that are here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rskip.captioning.captioner import Captioner

__all__ = ["Captioner"]


def __getattr__(name: str) -> object:
    # Imported when asked for: captions, scoring and command-line flags need no torch, which takes a second.
    if name == "Captioner":
        from rskip.captioning.captioner import Captioner

        return Captioner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
