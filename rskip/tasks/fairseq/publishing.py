"""Finds the paper that introduced the connection of a published Transformer."""

from __future__ import annotations

from rskip.connections import ConnectionSpec, Paper

_BASELINE = ConnectionSpec("xskip", 1, "ln")  # the Transformer's own connection, of this paper
_TRANSFORMER = Paper(
    title="Attention Is All You Need",
    authors="Ashish Vaswani et al.",
    url="https://arxiv.org/abs/1706.03762",
    part="section 3.1",
)


def paper_of(spec: ConnectionSpec) -> Paper:
    """The paper of a Transformer's connection; for the original connection, that of the Transformer."""
    return _TRANSFORMER if spec == _BASELINE else spec.paper
