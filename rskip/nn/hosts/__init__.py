"""The blocks that `rskip.adapt` knows, one file per kind."""

from rskip.nn.hosts import (  # noqa: F401  # they register
    bert,
    gpt2,
    llama,
    timm_resnet,
    timm_vit,
    torch_transformer,
    torchvision_resnet,
)
from rskip.nn.hosts.host import (
    HOSTS,
    YOURSELF,
    AdaptedBlock,
    AdaptedImageBlock,
    Host,
    Member,
    adapted_class,
    as_in,
    digest_of,
    find_host,
    has_hooks,
    register_host,
)

__all__ = [
    "HOSTS",
    "YOURSELF",
    "AdaptedBlock",
    "AdaptedImageBlock",
    "Host",
    "Member",
    "adapted_class",
    "as_in",
    "digest_of",
    "find_host",
    "has_hooks",
    "register_host",
]
