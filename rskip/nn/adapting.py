"""Replaces the residual additions in a model of a known library by a connection."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from os.path import commonprefix
from typing import Any, TypeVar

from torch import nn

from rskip.connections import ConnectionSpec, build_norm, parse_connection, read_supplies
from rskip.connections.connection import Connection, HostNeed
from rskip.connections.norms import LayerNorm
from rskip.nn.hosts.host import YOURSELF, AdaptedBlock, Host, Member, adapted_class, as_in, find_host, has_hooks
from rskip.nn.image_blocks import image_connections, join_images
from rskip.nn.residuals import REFERENCE, Residual, Residuals
from rskip.nn.spec_record import Moved, SpecRecord
from rskip.settings.errors import SettingError

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Adaptation:
    """What `adapt` did to a model.

    :param spec: the connection.
    :param hosts: the kinds of blocks that were adapted, and how many of each.
    :param stacks: kind and number of blocks, such as `6 × GPT-2`, and how many stacks have them. The blocks of one
        container are one stack.
    :param kept: parameters that were kept under another name, new name to old name.
    :param new: names of parameters that the model did not have. They have the family's initial values.
    :param dropped: names of the removed parameters.
    :param unclosed: containers of pre-norm blocks after which no final normalisation is known, so one of the model's
        own is unchanged there.
    :param unchanged: containers of residual blocks that `adapt` does not know, with the number and class of the blocks.
    """

    spec: str
    hosts: dict[str, int]
    stacks: dict[str, int]
    kept: dict[str, str]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    unclosed: tuple[str, ...]
    unchanged: tuple[str, ...]

    def __str__(self) -> str:
        """A summary: connection and blocks, then the parameters' names, where `*` stands for layer numbers."""
        blocks = ", ".join(each if count == 1 else f"{count} stacks of {each}" for each, count in self.stacks.items())
        moved = [f"{_without_numbers(old)} -> {_without_numbers(new)}" for new, old in self.kept.items()]
        lines = [f"{self.spec} in {blocks}"]
        lines += [f"kept under a new name: {names}" for names in dict.fromkeys(moved)]
        lines += [f"new: {name}" for name in dict.fromkeys(map(_without_numbers, self.new))]
        lines += [f"dropped: {name}" for name in dict.fromkeys(map(_without_numbers, self.dropped))]
        lines += [
            f"final normalisation after {name or 'the blocks'}: unknown to adapt and unchanged, if there is one"
            for name in dict.fromkeys(map(_without_numbers, self.unclosed))
        ]
        lines += [f"unchanged, since its blocks are unknown: {stack}" for stack in self.unchanged]
        return "\n".join(lines)


def _without_numbers(name: str) -> str:
    """The name with `*` for numbers, except for those inside a connection."""
    outside, connection, inside = name.partition(".connection.")
    return re.sub(r"\.\d+(?=\.|$)", ".*", outside) + connection + inside


def adapt(
    model: Model, connection: str | ConnectionSpec, *, host_supplies: HostNeed | Collection[HostNeed] = ()
) -> Model:
    """Replaces the residual additions in a model of a known library, in place, and warns about unknown blocks.

    The blocks' normalisations become part of the connections. Trained weights are kept for every part that the new
    function shares with the old one: all weights of the branches, and normalisations of the same kind in the same
    position. New parameters have the family's initial values. `adaptation(model)` lists what was kept and what is new.
    With the connection that the library itself computes, such as `prenorm+ln` in a timm ViT, outputs stay bit-equal.

    :param model: a model with known blocks (`rskip.nn.HOSTS`): torch.nn.TransformerEncoder and TransformerDecoder,
        ResNets of torchvision and timm, timm's ViTs, Hugging Face's BERT, GPT-2 and Llama. Other blocks stay.
    :param connection: connection string such as `2rskip+ln`.
    :param host_supplies: what you do for the connection yourself, out of HOST_NEEDS (`build_connection`).
    :returns: the same model.
    :raises SettingError: no block of the model is known, a block's code differs from the tested versions or is
        overridden, the model is already adapted, or these blocks do not support the connection. The model is then
        unchanged.
    """
    if not isinstance(model, nn.Module):
        raise SettingError.of_value("model", model, "a PyTorch model (torch.nn.Module), built")
    spec = connection if isinstance(connection, ConnectionSpec) else parse_connection(connection)
    found = _find_blocks(model)
    hosts = list(dict.fromkeys(host for _, host, _ in found))
    for host in hosts:
        host.check_sources()
        host.check_model(model, str(spec))
    for _, host, block in found:
        host.check(block)
    images = [(host, block) for _, host, block in found if host.is_of_images]
    stacks = _find_stacks(model, [(name, host, block) for name, host, block in found if not host.is_of_images])
    former = dict(model.named_parameters())  # keeps dropped parameters alive: a new one can't take over the id of one
    old = {id(parameter): name for name, parameter in former.items()}
    built = [stack.build(spec, stacks, host_supplies) for stack in stacks]  # raises before anything is changed
    connections = image_connections(spec, images)
    for stack, residuals in zip(stacks, built, strict=True):
        stack.join(spec, residuals)
    join_images(spec, images, connections)
    for host in hosts:
        host.finish(model, str(spec))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    after = model.__dict__["rskip_adaptation"] = Adaptation(
        str(spec),
        dict(Counter(host.name for _, host, _ in found)),
        dict(Counter(f"{len(stack.blocks)} × {stack.host.name}" for stack in stacks))
        | {f"{count} × {name}": 1 for name, count in Counter(host.name for host, _ in images).items()},
        kept={name: old[key] for key, name in names.items() if key in old and old[key] != name},
        new=tuple(name for key, name in names.items() if key not in old),
        dropped=tuple(name for key, name in old.items() if key not in names),
        unclosed=tuple(stack.name for stack in stacks if stack.final_norm is None and not stack.post_norm),
        unchanged=tuple(_unchanged_stacks(model)),
    )
    if after.unchanged:
        warnings.warn(f"adapt left stacks of unknown blocks unchanged: {', '.join(after.unchanged)}", stacklevel=2)
    return model


def adaptation(model: nn.Module) -> Adaptation | None:
    """What `adapt` did to this model, or None if it is not adapted."""
    return model.__dict__.get("rskip_adaptation")


class _Stack:
    """The blocks of one host in one container of the model.

    :param name: name of the container.
    :raises SettingError: the blocks differ in width, branches or the position of their normalisations, or a
        normalisation is missing or of an unknown kind.
    """

    def __init__(self, model: nn.Module, name: str, host: Host, blocks: list[Any]) -> None:
        self.name, self.host, self.blocks = name, host, blocks
        traits = [(_branches(host, block), host.features(block), host.post_norm(block)) for block in blocks]
        self.branches, self.features, self.post_norm = traits[0]
        if any(each != traits[0] for each in traits):
            problem = f"has different blocks of {host.name} in {name or 'one container'}"
            expected = "blocks of one width, with the same branches and normalisation position"
            raise SettingError("model", problem, expected=expected)
        path, _, container = name.rpartition(".")
        owner = model.get_submodule(path)
        final = host.final_norm(owner, container)
        self.final_norm: Member | None = None if final is None else (owner, final)

    def norm_of(self, block: Any, branch: str) -> tuple[Member, nn.Module]:
        """The host's normalisation of a branch, and its position in the block."""
        *path, name = self.host.norms[branch].split(".")
        owner = block.get_submodule(".".join(path))
        return (owner, name), getattr(owner, name)

    def build(
        self, spec: ConnectionSpec, stacks: Sequence[_Stack], supplies: HostNeed | Collection[HostNeed]
    ) -> Residuals:
        """Builds the connections of these blocks, with each block's device, type and mode."""
        _, norm = self.norm_of(self.blocks[0], self.branches[0])
        partner = self._partner(stacks)
        residuals = Residuals(
            spec,
            self.features,
            layers=len(self.blocks),
            branches=self.branches,
            stack=self.host.stack,  # type: ignore[arg-type]
            other_layers=0 if partner is None else len(partner.blocks),
            eps=_eps(norm),
            closing_norm=self.final_norm is None and self.post_norm,
            host_supplies=(*read_supplies(supplies), *self.host.supplies),
        )
        as_in(self.blocks[-1], residuals)
        for block, layer in zip(self.blocks, residuals, strict=True):
            as_in(block, layer)
        return residuals

    def _partner(self, stacks: Sequence[_Stack]) -> _Stack | None:
        """The other stack of an encoder-decoder: the two are each other's only candidate in the closest parent."""
        found = self._candidates(stacks)
        return found[0] if len(found) == 1 and found[0]._candidates(stacks) == [self] else None

    def _candidates(self, stacks: Sequence[_Stack]) -> list[_Stack]:
        """Of the stacks that have cross-attention if this one has none, or the reverse, those in the closest parent."""
        crosses = "cross_attention" in self.branches
        shared = {
            stack: len(commonprefix([self.name.split("."), stack.name.split(".")]))
            for stack in stacks
            if ("cross_attention" in stack.branches) != crosses
        }
        return [stack for stack, length in shared.items() if length == max(shared.values())]

    def join(self, spec: ConnectionSpec, residuals: Residuals) -> None:
        """Gives each block its residuals and new forward, and moves the host's normalisations into the connections."""
        for block, layer in zip(self.blocks, residuals, strict=True):
            for branch in self.branches:
                (owner, name), norm = self.norm_of(block, branch)
                residual = getattr(layer, branch)
                assert isinstance(residual, Residual)
                _take_over(norm, residual.connection, spec, post_norm=self.post_norm)
                delattr(owner, name)
                if block is self.blocks[0] and branch == self.branches[0]:
                    setattr(owner, name, as_in(block, Moved()))
            block.__class__ = adapted_class(self.host, type(block))  # type: ignore[arg-type]
            block.residuals = layer
        first, last = self.blocks[0], self.blocks[-1]
        first.spec_record = as_in(first, SpecRecord(str(spec)))
        # the block that uses them owns the parameters
        home = last if residuals.stack.closes else first
        if any(True for _ in residuals.stack.parameters()):
            home.stack = as_in(home, residuals.stack)
        for block in self.blocks:  # None in the others, because torch.compile doesn't notice a missing key
            block.__dict__["opening"] = residuals.stack if block is first else None
            block.__dict__["closing"] = residuals.stack if block is last else None
            block.register_module("closing_norm", residuals.closing_norm if block is last else None)
        if self.final_norm is not None:
            _close(self.final_norm, spec, last, self.features, post_norm=self.post_norm)


def _find_blocks(model: nn.Module) -> list[tuple[str, Host, Any]]:
    """The known blocks of the model, with their names and hosts, in order.

    :raises SettingError: the model has no known block, or uses one block twice in a container.
    """
    found: dict[tuple[str, int], tuple[str, Host, Any]] = {}
    first_names: dict[int, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        host = find_host(module)
        if host is None:
            continue
        container = name.rpartition(".")[0]
        if (container, id(module)) in found:
            problem = f"uses one block of {host.name} several times, as {found[container, id(module)][0]} and {name}"
            raise SettingError("model", problem, expected="a separate block each time, with its own connections")
        if first_names.setdefault(id(module), name) == name:  # skips a container that has a second name
            found[container, id(module)] = name, host, module
    if not found:
        problem = f"({type(model).__qualname__}) has no block that adapt knows"
        advice = f"{YOURSELF}; {REFERENCE} lists the models that adapt knows"
        raise SettingError("model", problem, advice=advice)
    return list(found.values())


def _branches(host: Host, block: nn.Module) -> tuple[str, ...]:
    """The block's branches, which each have a normalisation.

    :raises SettingError: another branch than cross-attention has none, or the kind of a normalisation is unknown.
    """
    modules = dict(block.named_modules(remove_duplicate=False))  # branches may share a normalisation
    branches = [branch for branch, norm in host.norms.items() if norm in modules or branch != "cross_attention"]
    for path in (host.norms[branch] for branch in branches):
        norm = modules.get(path)
        if norm is None or _kind(norm) is None:
            what = "no module" if norm is None else f"a {type(norm).__name__}"
            problem = f"has {what} as {path} in a block of {host.name}"
            raise SettingError("model", problem, expected="a LayerNorm or RMSNorm", advice=YOURSELF)
    return tuple(branches)


def _find_stacks(model: nn.Module, found: Sequence[tuple[str, Host, Any]]) -> list[_Stack]:
    """The blocks, grouped by their container.

    :raises SettingError: several containers such as `layers.0` hold one block each, one container holds blocks of
        two kinds, or several blocks are attributes of a module that is not a container.
    """
    containers: dict[tuple[str, Host], list[Any]] = {}
    for name, host, block in found:
        containers.setdefault((name.rpartition(".")[0], host), []).append(block)
    alone = [key for key, blocks in containers.items() if len(blocks) == 1]
    single = Counter((re.sub(r"\d+", "N", name), host) for name, host in alone)
    for (name, host), blocks in containers.items():
        pattern = re.sub(r"\d+", "N", name)
        each_apart = len(blocks) == 1 and "N" in pattern and single[pattern, host] > 1
        ordered = isinstance(model.get_submodule(name), (nn.ModuleList, nn.ModuleDict, nn.Sequential))
        if each_apart or (len(blocks) > 1 and not ordered):
            problem = f"has blocks of {host.name} in {pattern or 'one module'}, so their order is unknown"
            advice = "if each block is a stack of its own, adapt each of them separately"
            expected = "the blocks of a stack in one ModuleList or Sequential"
            raise SettingError("model", problem, expected=expected, advice=advice)
    kinds: dict[str, Host] = {}
    for name, host in containers:
        if (other := kinds.setdefault(name, host)) is not host:
            problem = f"has blocks of {other.name} and {host.name} in {name or 'one container'}"
            raise SettingError("model", problem, expected="blocks of one kind in each container")
    return [_Stack(model, name, host, blocks) for (name, host), blocks in containers.items()]


def _take_over(norm: nn.Module, connection: Connection, spec: ConnectionSpec, *, post_norm: bool) -> None:
    """Replaces the connection's normalisation by the host's if both have the same kind and position."""
    place = connection.output_slot if post_norm else connection.input_slot
    if place is None or spec.norm != _kind(norm):
        return
    path, _, name = place.rpartition(".")
    owner = connection.get_submodule(path)
    mine = owner._modules[name]
    if isinstance(mine, LayerNorm) and norm.bias is not None and not has_hooks(norm):
        mine.weight, mine.bias, mine.eps = norm.weight, norm.bias, _eps(norm)  # type: ignore[assignment]
    else:
        owner._modules[name] = norm  # the host's module itself, since its formula may round differently


def _close(final: Member, spec: ConnectionSpec, block: nn.Module, features: int, *, post_norm: bool) -> None:
    """Keeps the host's final normalisation as the closing one, replaces it, or removes it.

    If a post-norm stack has a final normalisation in addition to its blocks', post-norm connections keep it.
    """
    owner, name = final
    norm = getattr(owner, name)
    if spec.closing_norm is None:
        if not post_norm:
            setattr(owner, name, as_in(block, nn.Identity()))
    elif spec.closing_norm != _kind(norm):
        setattr(owner, name, as_in(block, build_norm(spec.closing_norm, features, eps=_eps(norm))))


def _unchanged_stacks(module: nn.Module, name: str = "") -> Iterator[str]:
    """Describes each container with several residual blocks of one class in a row and no adapted block."""
    if isinstance(module, AdaptedBlock):
        return
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and not any(
        isinstance(each, AdaptedBlock) for each in module.modules()
    ):
        runs = [(kind, len(list(run))) for kind, run in groupby(filter(_is_like_a_block, module), type)]
        found = [f"{name} ({count} × {kind.__name__})" for kind, count in runs if count > 1]
        if found:
            yield from found
            return
    for child_name, child in module.named_children():
        yield from _unchanged_stacks(child, f"{name}.{child_name}" if name else child_name)


def _is_like_a_block(module: nn.Module) -> bool:
    """Whether a module has a class of its own, a normalisation and several other modules with parameters."""
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        return False
    owners = [each for each in module.modules() if any(True for _ in each.parameters(recurse=False))]
    norms = sum("norm" in type(each).__name__.lower() for each in owners)
    return norms > 0 and len(owners) - norms > 1


def _kind(norm: nn.Module) -> str | None:
    """The normalisation's name in a spec."""
    if isinstance(norm, nn.LayerNorm):
        return "ln"
    return "rms" if "rmsnorm" in type(norm).__name__.lower() else None


def _eps(norm: Any) -> float:
    """The value that the normalisation adds to the variance."""
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    return 1e-5 if eps is None else float(eps)
