"""The papers that models' connections are from."""

from __future__ import annotations

from rskip.connections import ConnectionSpec, Paper, parse_connection

_BASELINES = {
    ("translation", ConnectionSpec("xskip", 1, "ln")): Paper(
        title="Attention Is All You Need",
        authors="Ashish Vaswani et al.",
        url="https://arxiv.org/abs/1706.03762",
        part="section 3.1",
    ),
    ("image-classification", ConnectionSpec("xskip", 1)): Paper(
        title="Identity Mappings in Deep Residual Networks",
        authors="Kaiming He, Xiangyu Zhang, Shaoqing Ren, Jian Sun",
        url="https://arxiv.org/abs/1603.05027",
    ),
}


def paper_of(connection: str, *, task: str) -> Paper:
    """The paper that a connection is from; of `1xskip+ln` in translation and `1xskip` on images the architecture's."""
    spec = parse_connection(connection)
    return _BASELINES.get((task, spec), spec.paper)
