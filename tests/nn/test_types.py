"""A user's file is checked by mypy with the package's own types (`py.typed`)."""

from __future__ import annotations

import subprocess
import sys

import pytest

FILE = """
import torch
from torch import Tensor, nn

import rskip
from rskip.connections import Connection, build_connection, register_connection
from rskip.nn import Residuals


@register_connection("halved", formula="(x + f) / 2", source="an example")
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


connection: Connection = build_connection("2rskip+ln", 8)
adapted: nn.Module = rskip.adapt(nn.TransformerEncoderLayer(8, 2), "2rskip+ln")
WRONG
"""


@pytest.mark.slow  # mypy reads PyTorch's types first
def test_a_users_file_has_the_packages_types(tmp_path):
    for name, wrong in (("right", ""), ("wrong", "build_connection(2, 8)\nResiduals('sas', '8', layers=1)")):
        (tmp_path / f"{name}.py").write_text(FILE.replace("WRONG", wrong))
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "right.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    lines = process.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if ": error:" in line] == ["wrong.py"] * 2, process.stdout
