"""Replaces the residual additions in a model of a known library by a connection."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from rskip.connections import ConnectionSpec, StackConnection, build_norm, parse_connection
from rskip.connections.connection import Connection, HostNeed
from rskip.connections.norms import LayerNorm
from rskip.nn.hosts import HOSTS, Host, Member, adapted_class
from rskip.nn.residuals import Residual, Residuals
from rskip.nn.spec_record import SpecRecord
from rskip.settings.errors import SettingError

GUIDE = "docs/own_model.md"


@dataclass(frozen=True)
class Adaptation:
    """What `adapt` did to a model.

    :param spec: the connection.
    :param hosts: the kinds of blocks that were adapted, with their number.
    :param kept: parameters that stay, new name to old name, where the name changed.
    :param new: names of parameters that the model did not have. They have the family's initial values.
    :param dropped: names of parameters that the model has no more.
    """

    spec: str
    hosts: dict[str, int]
    kept: dict[str, str]
    new: tuple[str, ...]
    dropped: tuple[str, ...]

    def __str__(self) -> str:
        """The connection and the blocks, then the names; `*` stands for the numbers of layers."""
        blocks = ", ".join(f"{count} × {name}" for name, count in self.hosts.items())
        moved = [f"{_without_numbers(old)} -> {_without_numbers(new)}" for new, old in self.kept.items()]
        lines = [f"{self.spec} in {blocks}"]
        lines += [f"kept under a new name: {names}" for names in dict.fromkeys(moved)]
        lines += [f"new: {name}" for name in dict.fromkeys(map(_without_numbers, self.new))]
        lines += [f"dropped: {name}" for name in dict.fromkeys(map(_without_numbers, self.dropped))]
        return "\n".join(lines)


def _without_numbers(name: str) -> str:
    return re.sub(r"\.\d+(?=\.)", ".*", name)


def adapt(
    model: nn.Module, connection: str | ConnectionSpec, *, host_supplies: HostNeed | Collection[HostNeed] = ()
) -> nn.Module:
    """Replaces the residual additions of a model of a known library, in place.

    The blocks' normalisations become part of the connections. Trained weights stay wherever the new function has the
    same part: all weights of the branches, and normalisations of the same kind in the same position. New parameters
    have the family's initial values. `adaptation(model)` tells what was kept and what is new. With the connection that
    the library computes itself, such as `prenorm+ln` in a timm ViT, the outputs stay bit-equal.

    :param model: its blocks are known (`rskip.nn.HOSTS`): torch.nn.TransformerEncoder and Decoder, ResNets of
        torchvision and timm, timm's ViTs, Hugging Face's BERT, GPT-2 and Llama.
    :param connection: connection string such as `2rskip+ln`.
    :param host_supplies: what you do for the connection yourself, any of HOST_NEEDS (`build_connection`).
    :returns: the same model.
    :raises SettingError: no block of the model is known, a library's block is not that of a tested version, the
        model is adapted already, or the connection can't live in these blocks. The model is then unchanged.
    """
    spec = connection if isinstance(connection, ConnectionSpec) else parse_connection(connection)
    if (before := adaptation(model)) is not None:
        advice = "adapt a model that is new"
        raise SettingError("model", f"is adapted to {before.spec} already", advice=advice)
    stacks = _find_stacks(model)
    for stack in stacks:
        stack.host.check_sources()
        for block in stack.blocks:
            stack.host.check(block)
    old = {id(parameter): name for name, parameter in model.named_parameters()}
    built = [stack.build(spec, model, stacks, host_supplies) for stack in stacks]  # raises before anything is changed
    for stack, residuals in zip(stacks, built, strict=True):
        stack.join(spec, model, residuals)
    for host in {id(stack.host): stack.host for stack in stacks}.values():
        host.finish(model, str(spec))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    hosts: dict[str, int] = {}
    for stack in stacks:
        hosts[stack.host.name] = hosts.get(stack.host.name, 0) + len(stack.blocks)
    model.__dict__["rskip_adaptation"] = Adaptation(
        str(spec),
        hosts,
        kept={name: old[key] for key, name in names.items() if key in old and old[key] != name},
        new=tuple(name for key, name in names.items() if key not in old),
        dropped=tuple(name for key, name in old.items() if key not in names),
    )
    return model


def adaptation(model: nn.Module) -> Adaptation | None:
    """What `adapt` did to this model; None if it is not adapted."""
    return model.__dict__.get("rskip_adaptation")


@dataclass
class _Stack:
    """The blocks of one host in one container of the model."""

    name: str
    host: Host
    blocks: list[Any]

    def norm_of(self, block: Any, branch: str) -> tuple[Member, nn.Module]:
        """The host's normalisation of a branch, and where the block has it."""
        *path, name = self.host.norms[branch].split(".")
        owner = block.get_submodule(".".join(path))
        return (owner, name), getattr(owner, name)

    def build(
        self,
        spec: ConnectionSpec,
        model: nn.Module,
        stacks: Sequence[_Stack],
        supplies: HostNeed | Collection[HostNeed],
    ) -> Residuals:
        """The connections of these blocks, on their device and of their type."""
        first = self.blocks[0]
        branches = tuple(self.host.norms)
        _, norm = self.norm_of(first, branches[0])
        others = [len(stack.blocks) for stack in stacks if stack is not self]
        supplied = (supplies,) if isinstance(supplies, str) else tuple(supplies)
        residuals = Residuals(
            spec,
            self.host.features(first),
            layers=len(self.blocks),
            branches=branches,
            stack=self.host.stack,  # type: ignore[arg-type]
            other_layers=others[0] if len(others) == 1 else 0,
            eps=_eps(norm),
            closing_norm=self.host.final_norm(model, self.name) is None,
            host_supplies=(*supplied, *self.host.supplies),
        )
        weight = next(first.parameters())
        return residuals.to(weight.device, weight.dtype)

    def join(self, spec: ConnectionSpec, model: nn.Module, residuals: Residuals) -> None:
        """Gives each block its residuals and its new forward, and the connections the host's normalisations."""
        for block, layer in zip(self.blocks, residuals, strict=True):
            for branch in self.host.norms:
                (owner, name), norm = self.norm_of(block, branch)
                residual = getattr(layer, branch)
                assert isinstance(residual, Residual)
                _take_over(norm, residual.connection, spec, post_norm=self.host.post_norm(block))
                delattr(owner, name)
            block.__class__ = adapted_class(self.host, type(block))  # type: ignore[arg-type]
            block.residuals = layer
        first, last = self.blocks[0], self.blocks[-1]
        first.spec_record = SpecRecord(str(spec))
        # its parameters belong to the block that uses them
        home = first if type(residuals.stack).leave is StackConnection.leave else last
        if any(True for _ in residuals.stack.parameters()):
            home.stack = residuals.stack
        first.__dict__["opening"] = last.__dict__["closing"] = residuals.stack
        if residuals.closing_norm is not None:
            last.closing_norm = residuals.closing_norm
        _close(self.host.final_norm(model, self.name), spec, residuals.features)


def _find_stacks(model: nn.Module) -> list[_Stack]:
    """The known blocks of the model, by the container that they are in."""
    stacks: dict[tuple[str, str], _Stack] = {}
    for name, module in model.named_modules():
        host = HOSTS.get(f"{type(module).__module__}.{type(module).__qualname__}")
        if host is not None:
            container = name.rpartition(".")[0]
            stacks.setdefault((container, host.block), _Stack(container, host, [])).blocks.append(module)
    if not stacks:
        known = ", ".join(sorted({host.name for host in HOSTS.values()}))
        problem = f"is a {type(model).__module__}.{type(model).__qualname__}, and none of its blocks is known"
        advice = f"use rskip.nn.Residuals in your own block ({GUIDE})"
        raise SettingError("model", problem, expected=f"a model with blocks of {known}", advice=advice)
    return list(stacks.values())


def _take_over(norm: nn.Module, connection: Connection, spec: ConnectionSpec, *, post_norm: bool) -> None:
    """Puts the host's normalisation in the place of the connection's, if both are of one kind in one position."""
    slot = _slot(connection, spec, post_norm=post_norm)
    if slot is None or spec.norm != _kind(norm):
        return
    owner, name = slot
    mine = owner._modules[name]
    if isinstance(mine, LayerNorm) and norm.bias is not None:
        mine.weight, mine.bias = norm.weight, norm.bias  # type: ignore[assignment]
    else:
        owner._modules[name] = norm  # whose formula may round differently


def _slot(connection: Connection, spec: ConnectionSpec, *, post_norm: bool) -> Member | None:
    """The connection's normalisation of the branch's input, or of the block's output (`post_norm`)."""
    members = dict(connection.named_children())
    if post_norm:
        norms = members.get("norms")
        if isinstance(norms, nn.ModuleList):
            return norms, str(len(norms) - 1)
        name = "output_norm" if "output_norm" in members else "norm"
        is_post = spec.closing_norm is None
    else:
        name = "branch_norm" if spec.family == "sas" else "norm"
        is_post = spec.closing_norm is None and spec.family != "keel"
    return (connection, name) if is_post == post_norm and members.get(name) is not None else None


def _close(final: Member | None, spec: ConnectionSpec, features: int) -> None:
    """Leaves the host's final normalisation as the closing one, or puts another one or none in its place."""
    if final is None:
        return
    owner, name = final
    norm = getattr(owner, name)
    if spec.closing_norm is None:
        setattr(owner, name, nn.Identity())
    elif spec.closing_norm != _kind(norm):
        closing = build_norm(spec.closing_norm, features)
        closing.eps = _eps(norm)
        weight = next(owner.parameters())
        setattr(owner, name, closing.to(weight.device, weight.dtype))


def _kind(norm: nn.Module) -> str | None:
    """The normalisation's name in a spec."""
    if isinstance(norm, nn.LayerNorm):
        return "ln"
    return "rms" if "RMSNorm" in type(norm).__name__ else None


def _eps(norm: Any) -> float:
    """What the normalisation adds to the variance."""
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    return 1e-5 if eps is None else float(eps)
