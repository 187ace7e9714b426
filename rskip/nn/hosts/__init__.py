"""The blocks that `rskip.adapt` knows, one file for each kind."""

from rskip.nn.hosts import timm_vit  # noqa: F401  # registers its block
from rskip.nn.hosts.host import HOSTS, AdaptedBlock, Host, Member, adapted_class, register_host

__all__ = ["HOSTS", "AdaptedBlock", "Host", "Member", "adapted_class", "register_host"]
