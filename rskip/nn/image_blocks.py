"""Residual blocks of image models: each has one connection, which does not change the branch."""

from __future__ import annotations

import torch

from rskip.connections import HOST_NEEDS, Connection, ConnectionSpec, Place, build_connection
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
