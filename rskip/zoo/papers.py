"""The papers that connections are from."""

from __future__ import annotations

import dataclasses

from rskip.connections import ConnectionSpec, parse_connection
from rskip.zoo.entry import Paper

_RSKIP = Paper(
    title="Rethinking Skip Connection with Layer Normalization in Transformers and ResNets",
    authors="Fenglin Liu, Xuancheng Ren, Zhiyuan Zhang, Xu Sun, Yuexian Zou",
    url="https://arxiv.org/abs/2105.07205",
    part=None,
)
_SAS = Paper(
    title="Self-Adaptive Scaling Approach for Learnable Residual Structure",
    authors="Fenglin Liu, Meng Gao, Yuanxin Liu, Kai Lei",
    url="https://aclanthology.org/K19-1080",
    part="Eq. 4",
)
_TRANSFORMER = Paper(
    title="Attention Is All You Need",
    authors="Ashish Vaswani et al.",
    url="https://arxiv.org/abs/1706.03762",
    part="section 3.1",
)
_PREACT_RESNET = Paper(
    title="Identity Mappings in Deep Residual Networks",
    authors="Kaiming He, Xiangyu Zhang, Shaoqing Ren, Jian Sun",
    url="https://arxiv.org/abs/1603.05027",
    part=None,
)
_OF_FAMILY = {
    "xskip": dataclasses.replace(_RSKIP, part="Eq. 2 and 3"),
    "rskip": dataclasses.replace(_RSKIP, part="Eq. 4"),
    "wskip": dataclasses.replace(_RSKIP, part="section 4.3"),
    "sas": _SAS,
    "highway": Paper(
        title="Highway Networks",
        authors="Rupesh Kumar Srivastava, Klaus Greff, Jürgen Schmidhuber",
        url="https://arxiv.org/abs/1505.00387",
        part=None,
    ),
    "prenorm": Paper(
        title="On Layer Normalization in the Transformer Architecture",
        authors="Ruibin Xiong et al.",
        url="https://arxiv.org/abs/2002.04745",
        part=None,
    ),
}
_BASELINES = {
    ("translation", ConnectionSpec("xskip", 1, "ln")): _TRANSFORMER,
    ("image-classification", ConnectionSpec("xskip", 1)): _PREACT_RESNET,
}


def paper_of(connection: str, *, task: str) -> Paper:
    """The paper that a connection is from: for `1xskip+ln` in translation and `1xskip` on images, the architecture's.

    :raises ValueError: a connection that no paper is known of.
    """
    spec = parse_connection(connection)
    if (baseline := _BASELINES.get((task, spec))) is not None:
        return baseline
    if spec.family not in _OF_FAMILY:
        raise ValueError(f"the paper of the connection {connection} is not known: add it to rskip/zoo/papers.py")
    return _OF_FAMILY[spec.family]
