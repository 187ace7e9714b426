"""The residual connections of image models: features along the channels, gates that start as the linear map does."""

from __future__ import annotations

import math

from torch import Tensor, nn

from rskip.connections import Connection, ConnectionSpec, build_connection, parse_connection


def read_connection(connection: str | ConnectionSpec) -> ConnectionSpec:
    """The spec that `connection` is or names.

    :raises ValueError: where it names none.
    """
    if isinstance(connection, ConnectionSpec):
        return connection
    if not isinstance(connection, str):
        raise ValueError(f"connection must be a spec such as '2rskip+ln', not {connection!r}")
    return parse_connection(connection)


def image_connection(spec: ConnectionSpec, features: int) -> Connection:
    """The connection that `spec` names, for x and f of shape (N, features, H, W).

    :raises ValueError: for one that is for text alone, or that would feed the branch anything but the block's input.
    """
    connection = build_connection(spec, features, feature_dim=1)
    if type(connection).branch_input is not Connection.branch_input:
        raise ValueError(f"{spec} changes the branch's input, which blocks of images don't support: choose another")
    return connection


def reset_connections(model: nn.Module) -> None:
    """Sets the parameters of all connections in the model to their initial values, gates' weights as fill_as_linear."""
    for module in model.modules():
        if isinstance(module, Connection):
            module.reset_parameters(weight_init=fill_as_linear)


def fill_as_linear(weight: Tensor) -> None:
    """Fills a weight as nn.Linear fills its own: uniform in ±1/√inputs."""
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
