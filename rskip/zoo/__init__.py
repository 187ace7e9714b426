"""Lists, describes and loads pretrained models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.zoo.loading import load
    from rskip.zoo.model_card import describe
    from rskip.zoo.registry import list_models

__all__ = ["describe", "list_models", "load"]

__getattr__ = imported_on_use(__name__, {"describe": "model_card", "list_models": "registry", "load": "loading"})
