"""The small Transformers of tests/transformer, with which the kernels are compared."""

from tests.transformer.conftest import build, connection, gradients, prefix, source

__all__ = ["build", "connection", "gradients", "prefix", "source"]
