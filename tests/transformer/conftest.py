"""Small Transformers of every connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch

from rskip.transformer import Transformer, TransformerConfig
from tests.connections.every_connection import with_every_family

Model = TypeVar("Model", bound=torch.nn.Module)

CONNECTIONS = with_every_family([
    "1xskip", "2xskip+rms", "1xskip+ln:branch_scale=2", "3rskip+rms", "sas", "sas+rms", "sas:gamma=free",
    "sas:gate=single", "sas:norm_term=false", "highway", "highway:gate=full", "highway:gate=shortcut", "prenorm+rms",
    "deepnorm+rms", "layerscale", "layerscale+ln", "periln+rms", "mixln:ratio=0.5", "laurel+ln", "laurel:form=rw",
    "hyper:streams=2", "hyper+rms:form=static,streams=3", "mhc:streams=2", "attnres:blocks=3", "mhc_lite:streams=2",
    "mhc:residual=identity,streams=2", "orthogonal+ln", "frac:parts=2", "hybridnorm+rms:first=prenorm",
    "normformer+rms:res_scale=true", "mhc:exit=head,streams=2", "mhc:reads=previous,streams=2",
    "attnres:queries=3", "attnres:layers=1,values=rms", "x0:backout=true", "gated_residual:rank=4",
])  # fmt: skip


@pytest.fixture(params=CONNECTIONS)
def connection(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def build() -> Callable[..., Transformer]:
    """Builds a small Transformer in eval mode and float64, with `draw_parts`."""

    def build(connection: str = "1xskip+ln", **changes: Any) -> Transformer:
        torch.manual_seed(0)
        return draw_parts(Transformer(small(connection, **changes)))

    return build


def draw_parts(model: Model) -> Model:
    """The model in eval mode and float64, with drawn norms so that none is the identity, and drawn values where a
    connection starts with equal ones, so that no part is cut off."""
    model = model.double().eval()
    for name, parameter in model.named_parameters():
        starts_equal = ("connection." in name or name.endswith("output_projection.bias")) and "gate" not in name
        starts_equal &= bool((parameter == parameter.mean()).all())
        if "norm" in name or name.endswith(("head_scale", "value_residual.factors")) or starts_equal:
            maps = parameter.dim() > 1 or name.endswith("query")  # into a tanh or a softmax
            low, high = (-0.2, 0.2) if maps else (0.5, 1.5)
            torch.nn.init.uniform_(parameter, low, high)
    return model


SIZES = {"embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 4, "layers": 2}


def small(connection: str, **changes: Any) -> TransformerConfig:
    """Of a small Transformer with this connection on both sides."""
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in SIZES.items()}
    connections = {"encoder_connection": connection, "decoder_connection": connection}
    vocabularies = {"source_vocabulary": 23, "target_vocabulary": 29}
    return TransformerConfig(**{**vocabularies, **sides, **connections, **changes})


@pytest.fixture
def source() -> torch.Tensor:
    """Three sentences (3, 7) of lengths 7, 4 (padded on the left) and 5 (padded on the right)."""
    torch.manual_seed(1)
    tokens = torch.randint(4, 23, (3, 7))
    tokens[1, :3] = 1
    tokens[2, 5:] = 1
    return tokens


@pytest.fixture
def prefix() -> torch.Tensor:
    """Three target prefixes (3, 6)."""
    torch.manual_seed(2)
    return torch.randint(4, 29, (3, 6))


@pytest.fixture
def gradients():
    """The cross-entropy's gradient of each parameter by name, of a model, sources and prefixes, with one dropout."""

    def gradients(model, source, prefix):
        torch.manual_seed(3)
        model.zero_grad()
        logits = model(source, prefix)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), prefix.flatten()).backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    return gradients
