"""A model as a user writes it, whose types `make lint` checks."""

# mypy: disallow-untyped-defs, disallow-untyped-calls, disallow-any-generics
# mypy: warn-return-any, no-implicit-reexport, strict-equality

from __future__ import annotations

from torch import Tensor, nn

import rskip
from rskip.connections import Connection, build_connection, register_connection
from rskip.nn import Residuals


@register_connection("halved", source="an example")
class Halved(Connection):
    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return (x + f) / 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.residuals = Residuals("halved", 8, layers=2, branches=("ffn",), eps=1e-6)
        self.ffn = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        s = self.residuals.enter(x)
        for residual in self.residuals:
            s = residual.ffn(s, self.ffn)
        return self.residuals.leave(s)


def join(connection: Connection, x: Tensor, f: Tensor) -> Tensor:
    return connection(x, f)


connection: Connection = build_connection("2rskip+ln", 8)
adapted: nn.Module = rskip.adapt(nn.TransformerEncoderLayer(8, 2), "2rskip+ln")
