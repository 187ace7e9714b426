"""The residual blocks of images: each has one connection, which leaves its branch as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rskip.connections import HOST_NEEDS, Connection, ConnectionSpec, Place, build_connection
from rskip.nn.hosts import Host, adapted_class, as_in
from rskip.nn.spec_record import SpecRecord
from rskip.settings.errors import SettingError


def image_place(block: int, blocks: int) -> Place:
    """The place of a network's block, from 1, each of which is a layer."""
    return Place("network", "block", block, blocks, block, blocks)


def image_connection(spec: ConnectionSpec, features: int, place: Place | None = None) -> Connection:
    """The connection that `spec` names, for x and f of shape (N, features, H, W).

    :raises SettingError: it is for text only, or feeds the branch something other than the block's input, or changes
        what is inside the branch.
    """
    connection = build_connection(spec, features, feature_dim=1, place=place, host_supplies=HOST_NEEDS)
    x = torch.zeros(1, features, 1, 1)
    if connection.before(x)[0] is not x or connection.host_needs:
        expected = "a connection that changes neither the branch's input nor what is inside it, for blocks of images"
        raise SettingError.of_value("connection", str(spec), expected)
    return connection


def image_connections(spec: ConnectionSpec, blocks: Sequence[tuple[Host, Any]]) -> list[Connection]:
    """The connections of a model's blocks, on their devices, of their types and in their mode; each is a layer of one
    network.

    :raises SettingError: as `image_connection` does.
    """
    connections = []
    for number, (host, block) in enumerate(blocks, start=1):
        connection = image_connection(spec, host.features(block), image_place(number, len(blocks)))
        connections.append(as_in(block, connection))
    return connections


def join_images(
    spec: ConnectionSpec, blocks: Sequence[tuple[Host, Any]], connections: Sequence[Connection]
) -> None:
    """Gives each block its connection and its new forward."""
    for (host, block), connection in zip(blocks, connections, strict=True):
        block.__class__ = adapted_class(host, type(block))  # type: ignore[arg-type]
        block.connection = connection
    for _, first in blocks[:1]:
        first.spec_record = as_in(first, SpecRecord(str(spec)))
