"""The description of a host: a library's block whose residual additions `adapt` replaces."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import NoneType
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from rskip.connections import Connection, StackConnection, State
from rskip.connections.connection import HostNeed
from rskip.nn.residuals import LayerResiduals
from rskip.settings.errors import SettingError

AnyModule = TypeVar("AnyModule", bound=nn.Module)
# A module and the name of its member.
Member = tuple[nn.Module, str]
YOURSELF = "put the connections into the blocks yourself (docs/adapt.md)"  # the advice for what `adapt` refuses


class AdaptedBlock(nn.Module):
    """The part of an adapted block that its library does not have. Each host derives its block from this class.

    The first block of a stack opens it and the last block closes it, so the model around the blocks does not change.
    Members: `residuals`; in the first block `spec_record`; for connections that have them, `stack` in the first or last
    block, and `closing_norm` in the last block.
    """

    host: ClassVar[Host]
    library_class: ClassVar[type[nn.Module]]
    residuals: LayerResiduals

    def enter(self, x: Any) -> State:
        """The state from the block's input. The first block of a stack opens the stack."""
        opening: StackConnection | None = self.__dict__.get("opening")
        return x if opening is None else opening.enter(x)

    def leave(self, state: State) -> Any:
        """The block's output. The last block of a stack returns one tensor."""
        closing: StackConnection | None = self.__dict__.get("closing")
        if closing is None:
            return state
        x = closing.leave(state)
        norm = self._modules.get("closing_norm")
        return x if norm is None else norm(x)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _new_block, (self.host.block, self.library_class), self.__dict__


class AdaptedImageBlock(AdaptedBlock):
    """An adapted image block, which keeps its own normalisations. Members: `connection`; in the model's first block
    `spec_record`."""

    connection: Connection

    def join(self, shortcut: Tensor, f: Tensor) -> Tensor:
        """y from the shortcut of the block's input and the branch's output."""
        y = self.connection.after(self.connection.before(shortcut)[1], f)
        assert isinstance(y, Tensor)  # `image_connection` refuses others
        return y


@dataclass(frozen=True, eq=False)
class Host:
    """A block of a library, and how its residual additions are replaced.

    :param name: for messages, such as "timm ViT".
    :param block: path of the block's class.
    :param adapted: the class with the new forward. An adapted block's class derives from it and from the block's own
        class. For image blocks it derives from AdaptedImageBlock, and `norms` is empty.
    :param sources: paths of the functions that compute the block; their source is compared with the tested versions'.
    :param parts: classes of the block's submodules whose parts the new forward calls directly, by their paths in the
        block. `sources` has the forward of each class.
    :param digests: `digest_of(sources)` in each tested version of the library, by version.
    :param features: returns C of a block.
    :param norms: path of each branch's normalisation in the block, by the branch's name for `Residuals`. Only
        `cross_attention` may be missing: a block without its normalisation does not have that branch.
    :param post_norm: whether a block normalises after the addition.
    :param final_norms: names of the normalisation that closes a stack, by the path of the stack's container, such as
        `timm.models.vision_transformer.VisionTransformer.blocks`. A class that is not listed keeps its normalisations.
    :param check: raises SettingError for a block with options that the new forward does not support.
    :param check_model: called with the model and the spec before anything is changed; raises SettingError if they do
        not fit.
    :param stack: "encoder" or "decoder"; None: see `Residuals`.
    :param supplies: the `host_needs` that this host supplies.
    :param finish: called with the adapted model and the spec, to change what the library stores with the weights.
    """

    name: str
    block: str
    adapted: type[AdaptedBlock]
    sources: tuple[str, ...]
    digests: Mapping[str, str]
    features: Callable[[Any], int]
    norms: Mapping[str, str] = field(default_factory=dict)
    post_norm: Callable[[Any], bool] = lambda block: False
    final_norms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    check: Callable[[Any], None] = lambda block: None
    check_model: Callable[[nn.Module, str], None] = lambda model, spec: None
    parts: Mapping[str, str] = field(default_factory=dict)
    stack: str | None = None
    supplies: tuple[HostNeed, ...] = ()
    finish: Callable[[nn.Module, str], None] = lambda model, spec: None

    @property
    def library(self) -> str:
        """The library's top-level package."""
        return self.block.partition(".")[0]

    @property
    def is_of_images(self) -> bool:
        """Whether this is the host of image blocks."""
        return issubclass(self.adapted, AdaptedImageBlock)

    def final_norm(self, owner: nn.Module, container: str) -> str | None:
        """Name of the normalisation in `owner` that closes the stack in its member `container`, if both are known."""
        for kind in type(owner).__mro__:
            for name in self.final_norms.get(f"{_path(kind)}.{container}", ()):
                if not isinstance(getattr(owner, name, None), (nn.Identity, NoneType)):
                    return name
        return None

    def check_sources(self) -> None:
        """Raises SettingError unless the library computes the block like one of the tested versions."""
        if digest_of(self.sources) not in self.digests.values():
            version = getattr(importlib.import_module(self.library), "__version__", "of an unknown version")
            expected = f"the block of {self.library} {', '.join(self.digests)}"
            advice = f"install one of these versions, or {YOURSELF}"
            problem = f"has blocks of {self.library} {version}, which computes {self.block} differently"
            raise SettingError("model", problem, expected=expected, advice=advice)


HOSTS: dict[str, Host] = {}


def register_host(host: Host) -> None:
    """Registers a host for `adapt`, by the path of its block's class."""
    HOSTS[host.block] = host


def find_host(block: nn.Module) -> Host | None:
    """The host of a block whose class is the library's or derived from it; None for any other module.

    :raises SettingError: the block is already adapted, or its class or the block itself has another forward.
    """
    if isinstance(block, AdaptedBlock):
        advice = "build the model again, and adapt that one"
        raise SettingError("model", f"has blocks of {block.host.name} that are already adapted", advice=advice)
    for kind in type(block).__mro__:
        host = HOSTS.get(_path(kind))
        if host is not None:
            _check_overrides(block, kind, host)
            _check_parts(block, host)
            return host
    return None


def _check_overrides(block: nn.Module, known: type[nn.Module], host: Host) -> None:
    """Raises SettingError if the block or its class replaces one of the functions that compute the block."""
    names = [path.rpartition(".")[2] for path in host.sources if path.startswith(f"{host.block}.")]
    functions = [(name, *(inspect.unwrap(getattr(kind, name)) for kind in (type(block), known))) for name in names]
    own = [name for name, mine, theirs in functions if mine is not theirs or name in vars(block)]
    if own:
        problem = f"has blocks of {_path(type(block))}, which replace {', '.join(own)} of {host.block}"
        raise SettingError("model", problem, expected="the library's own block", advice=YOURSELF)


def _check_parts(block: nn.Module, host: Host) -> None:
    """Raises SettingError if the new forward would go around a submodule that computes something else or has hooks."""
    modules = dict(block.named_modules())
    for path, part in host.parts.items():
        module = modules.get(path)
        if module is None:
            continue
        own = getattr(type(module), "forward", None) is not find_member(part).forward or "forward" in vars(module)
        if own or has_hooks(module):
            what = "hooks on its" if not own else f"{_path(type(module))} as"
            problem = f"has blocks of {host.name} with {what} {path}, which an adapted block does not call"
            raise SettingError("model", problem, expected=f"{part} without hooks", advice=YOURSELF)


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks run at calls of the module."""
    kinds = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    return any(getattr(module, kind) for kind in kinds)


@cache
def adapted_class(host: Host, block: type[nn.Module]) -> type[AdaptedBlock]:
    """The class of an adapted block, derived from the host's new forward and the library's class.

    It keeps the library's name, because libraries use it to find blocks that stay on one device or that FSDP wraps.
    """
    members = {"__module__": block.__module__, "host": host, "library_class": block}
    return type(block.__name__, (host.adapted, block), members)


def as_in(block: nn.Module, module: AnyModule) -> AnyModule:
    """The module with the block's device, type and mode."""
    weight = next((parameter for parameter in block.parameters() if parameter.is_floating_point()), None)
    module.train(block.training)
    return module if weight is None else module.to(weight.device, weight.dtype)


def _new_block(host: str, block: type[nn.Module]) -> AdaptedBlock:
    """An empty adapted block, which pickle fills."""
    kind = adapted_class(HOSTS[host], block)  # type: ignore[arg-type]
    return kind.__new__(kind)


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def digest_of(paths: tuple[str, ...]) -> str:
    """The first 16 digits of the SHA-256 of the functions' source, without comments, blank lines and indentation."""
    digest = hashlib.sha256()
    for path in paths:
        lines = textwrap.dedent(inspect.getsource(find_member(path))).splitlines()
        kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        digest.update("\n".join(kept).encode())
    return digest.hexdigest()[:16]


def find_member(path: str) -> Any:
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
