"""DeepNorm: the post-norm block whose skip and initial weights are scaled according to the model's depth."""

from __future__ import annotations

from rskip.connections.connection import Connection
from rskip.connections.place import Place
from rskip.connections.registry import Fold, register_connection
from rskip.connections.rskip import XSkip
from rskip.connections.spec import ConnectionSpec
from rskip.settings.paper import Paper


def _fold(spec: ConnectionSpec) -> Fold:
    def factor(connection: Connection) -> float:
        assert isinstance(connection, DeepNorm)
        return 1 / connection.scale

    return Fold(f"1xskip+{spec.norm}", factor)


def depth_scale(place: Place) -> float:
    """DeepNorm's α (Table 1): 0.81(N⁴M)^(1/16) in an encoder of N layers with a decoder of M layers.

    In any other stack it is the fourth root of the number of blocks: (3M)^(1/4) in a decoder of M layers with an
    encoder, (2N)^(1/4) in a model of one stack with N layers.
    """
    if place.stack == "encoder" and place.other_layers:
        return 0.81 * (place.layers**4 * place.other_layers) ** 0.0625
    return place.sublayers**0.25


@register_connection(
    "deepnorm",
    formula="norm(αx + f), α by depth",
    source="Wang et al. 2022, Table 1",
    norms=("ln", "rms"),
    default_norm="ln",
    text_only=True,
    fold=_fold,
    paper=Paper(
        title="DeepNet: Scaling Transformers to 1,000 Layers",
        authors="Hongyu Wang, Shuming Ma, Li Dong, Shaohan Huang, Dongdong Zhang, Furu Wei",
        url="https://arxiv.org/abs/2203.00555",
        part="Table 1",
    ),
)
class DeepNorm(XSkip):
    """y = norm(αx + f). A gain multiplies the initial value, output and feed-forward weights.

    With N encoder and M decoder layers (Wang et al. 2022, Table 1):

    - encoder: α = 0.81(N⁴M)^(1/16), gain 0.87(N⁴M)^(-1/16); torchscale's code has 1.15 instead of 0.87.
    - decoder: α = (3M)^(1/4), gain (12M)^(-1/4).
    - a model of one stack with N layers: α = (2N)^(1/4), gain (8N)^(-1/4).

    Members: `norm`.
    """

    def __init__(self, features: int, *, norm: str, place: Place, feature_dim: int = -1) -> None:
        layers, others = place.layers, place.other_layers
        if place.stack == "encoder" and others:
            self._gain = 0.87 * (layers**4 * others) ** -0.0625
        else:
            self._gain = ((12 if others or place.crosses else 8) * layers) ** -0.25
        super().__init__(features, scale=depth_scale(place), norm=norm, branch_scale=1, feature_dim=feature_dim)

    @property
    def branch_gain(self) -> float:
        return self._gain
