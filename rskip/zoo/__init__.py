"""Lists, describes and loads pretrained models by name."""

from rskip.zoo.loading import load
from rskip.zoo.model_card import describe
from rskip.zoo.registry import list_models

__all__ = ["describe", "list_models", "load"]
