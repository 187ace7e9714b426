"""The description of a host: a library's block whose residual additions `adapt` replaces."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import nn

from rskip.connections import StackConnection, State
from rskip.connections.connection import HostNeed
from rskip.nn.residuals import LayerResiduals
from rskip.settings.errors import SettingError

# A module and the name of its member.
Member = tuple[nn.Module, str]


class AdaptedBlock(nn.Module):
    """What an adapted block has in addition to its library's members. Each host derives its block from this class.

    The first block of a stack opens it, and the last one closes it, so the model around the blocks stays as it is.
    Members: `residuals`; in the first block `spec_record`; in the first or the last one `stack`, and in the last one
    `closing_norm`, for connections that have them.
    """

    residuals: LayerResiduals

    def enter(self, x: Any) -> State:
        """The state from the block's input: in a stack's first block, the opened stack."""
        opening: StackConnection | None = self.__dict__.get("opening")
        return x if opening is None else opening.enter(x)

    def leave(self, state: State) -> Any:
        """The block's output: in a stack's last block, one tensor."""
        closing: StackConnection | None = self.__dict__.get("closing")
        if closing is None:
            return state
        x = closing.leave(state)
        norm = self._modules.get("closing_norm")
        return x if norm is None else norm(x)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        host = next(each for each in HOSTS.values() if isinstance(self, each.adapted))
        return _new_block, (host.block,), self.__dict__


@dataclass(frozen=True, eq=False)
class Host:
    """A block of a library, and how its residual additions are replaced.

    :param name: for messages, such as "timm ViT".
    :param block: path of the block's class.
    :param adapted: the class with the new forward; an adapted block is of a class derived from this and its own.
    :param sources: paths of the functions that compute the block, whose source is compared.
    :param digests: `digest_of(sources)` in each tested version of the library, by version.
    :param norms: the path of each branch's normalisation in the block, by the branch's name for `Residuals`.
    :param features: C of a block.
    :param post_norm: whether a block normalises after the addition.
    :param final_norm: where the model has the normalisation that closes the stack of a given name; None: nowhere.
    :param check: raises SettingError for a block with options that the new forward doesn't know.
    :param stack: "encoder" or "decoder"; None: as `Residuals` finds it.
    :param supplies: the `host_needs` that this host fulfils.
    :param finish: called with the adapted model and the spec, for what the library stores beside the weights.
    """

    name: str
    block: str
    adapted: type[AdaptedBlock]
    sources: tuple[str, ...]
    digests: Mapping[str, str]
    norms: Mapping[str, str]
    features: Callable[[Any], int]
    post_norm: Callable[[Any], bool] = lambda block: False
    final_norm: Callable[[Any, str], Member | None] = lambda model, stack: None
    check: Callable[[Any], None] = lambda block: None
    stack: str | None = None
    supplies: tuple[HostNeed, ...] = ()
    finish: Callable[[nn.Module, str], None] = lambda model, spec: None

    @property
    def library(self) -> str:
        """The library's top-level package."""
        return self.block.partition(".")[0]

    def check_sources(self) -> None:
        """SettingError unless the library computes the block as a tested version does."""
        if digest_of(self.sources) not in self.digests.values():
            version = getattr(importlib.import_module(self.library), "__version__", "of an unknown version")
            expected = f"the block of {self.library} {', '.join(self.digests)}"
            advice = "install one of these versions, or use rskip.nn.Residuals in your own block"
            problem = f"has blocks of {self.library} {version}, which computes {self.block} in another way"
            raise SettingError("model", problem, expected=expected, advice=advice)


HOSTS: dict[str, Host] = {}


def register_host(host: Host) -> None:
    """Makes a host known to `adapt`, by the path of its block's class."""
    HOSTS[host.block] = host


@cache
def adapted_class(host: Host, block: type[nn.Module]) -> type[AdaptedBlock]:
    """The class of an adapted block: the host's new forward before the library's class."""
    return type(f"Adapted{block.__name__}", (host.adapted, block), {"__module__": host.adapted.__module__})


def _new_block(path: str) -> AdaptedBlock:
    """An empty adapted block, which pickle fills."""
    kind = adapted_class(HOSTS[path], _find(path))
    return kind.__new__(kind)


def digest_of(paths: tuple[str, ...]) -> str:
    """The first 16 digits of the SHA-256 of the functions' source, without comments, blank lines and indentation."""
    digest = hashlib.sha256()
    for path in paths:
        lines = textwrap.dedent(inspect.getsource(_find(path))).splitlines()
        kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        digest.update("\n".join(kept).encode())
    return digest.hexdigest()[:16]


def _find(path: str) -> Any:
    """The class or function at a path such as `timm.models.vision_transformer.Block.forward`."""
    names = path.split(".")
    for count in range(len(names) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(names[:count]))
        except ModuleNotFoundError:
            continue
        for name in names[count:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)
