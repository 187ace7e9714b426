"""Residual blocks of image models: each has one connection, which does not change the branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rskip.connections import HOST_NEEDS, Connection, ConnectionSpec, Place, build_connection
from rskip.nn.hosts.host import Host, adapted_class, as_in
from rskip.nn.spec_record import SpecRecord
from rskip.settings.errors import SettingError


def image_place(block: int, blocks: int) -> Place:
    """The position of a block in a network. Blocks are numbered from 1, and each is one layer."""
    return Place("network", "block", block, blocks, block, blocks)


def image_connection(spec: ConnectionSpec, features: int, place: Place | None = None) -> Connection:
    """The connection that `spec` names, for x and f of shape (N, features, H, W).

    :raises SettingError: it works only on sequences, changes the branch's input, or changes the inside of the branch.
    """
    connection = build_connection(spec, features, feature_dim=1, place=place, host_supplies=HOST_NEEDS)
    x = torch.zeros(1, features, 1, 1)
    if connection.before(x)[0] is not x or connection.host_needs:
        expected = "a connection that changes neither the input nor the inside of the branch, for blocks of a ResNet"
        raise SettingError.of_value("connection", str(spec), expected)
    return connection


def image_connections(spec: ConnectionSpec, blocks: Sequence[tuple[Host, Any]]) -> list[Connection]:
    """Builds the connections of a model's blocks, with each block's device, type and mode. Each block is one layer.

    :raises SettingError: see `image_connection`.
    """
    connections = []
    for number, (host, block) in enumerate(blocks, start=1):
        connection = image_connection(spec, host.features(block), image_place(number, len(blocks)))
        connections.append(as_in(block, connection))
    return connections


def join_images(
    spec: ConnectionSpec, blocks: Sequence[tuple[Host, Any]], connections: Sequence[Connection]
) -> None:
    """Gives each block its connection and new forward."""
    for (host, block), connection in zip(blocks, connections, strict=True):
        block.__class__ = adapted_class(host, type(block))  # type: ignore[arg-type]
        block.connection = connection
    for _, first in blocks[:1]:
        first.spec_record = as_in(first, SpecRecord(str(spec)))
