"""The small Transformers of tests/transformer, which the kernels are held equal to."""

from tests.transformer.conftest import build, connection, gradients, prefix, source

__all__ = ["build", "connection", "gradients", "prefix", "source"]
