"""The blocks that `rskip.adapt` knows, one file for each kind."""

from rskip.nn.hosts import timm_resnet, timm_vit, torch_transformer, torchvision_resnet  # noqa: F401  # they register
from rskip.nn.hosts.host import (
    HOSTS,
    AdaptedBlock,
    AdaptedImageBlock,
    Host,
    Member,
    adapted_class,
    as_in,
    find_host,
    register_host,
)

__all__ = [
    "HOSTS",
    "AdaptedBlock",
    "AdaptedImageBlock",
    "Host",
    "Member",
    "adapted_class",
    "as_in",
    "find_host",
    "register_host",
]
