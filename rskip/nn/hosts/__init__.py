"""The blocks that `rskip.adapt` knows, one file for each kind."""

from rskip.nn.hosts import timm_vit, torch_transformer  # noqa: F401  # registers its block
from rskip.nn.hosts.host import (
    HOSTS,
    AdaptedBlock,
    AdaptedImageBlock,
    Host,
    Member,
    adapted_class,
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
    "find_host",
    "register_host",
]
