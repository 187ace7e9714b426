"""What the tests of connections share: modules with random parameters, inputs, equality with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from rskip.connections import Connection, build_connection


@pytest.fixture
def build() -> Callable[..., Connection]:
    """Like build_connection, in float64 and with random parameters, so that no gain or bias goes untested."""

    def build_random(spec: str, features: int, *, feature_dim: int = -1, seed: int = 0) -> Connection:
        connection = build_connection(spec, features, feature_dim=feature_dim).double()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in connection.parameters():
                parameter.uniform_(0.3, 1.5, generator=generator)
        return connection

    return build_random


@pytest.fixture
def draw() -> Callable[..., tuple[Tensor, Tensor]]:
    """x and f of one shape, float64, with gradients wanted."""

    def draw_pair(*shape: int, seed: int = 1) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        x, f = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        return x.requires_grad_(), f.requires_grad_()

    return draw_pair


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """Two outputs are equal, and so are the gradients of one random scalar of each in the given tensors."""

    def compare(
        y: Tensor, z: Tensor, of_y: Sequence[Tensor], of_z: Sequence[Tensor], *, tolerance: float = 1e-12
    ) -> None:
        def assert_close(a: Tensor, b: Tensor) -> None:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

        assert_close(y, z)
        assert len(of_y) == len(of_z)
        direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)
        left = torch.autograd.grad((y * direction).sum(), of_y, retain_graph=True)
        right = torch.autograd.grad((z * direction).sum(), of_z, retain_graph=True)
        for a, b in zip(left, right, strict=True):
            assert_close(a, b)

    return compare
