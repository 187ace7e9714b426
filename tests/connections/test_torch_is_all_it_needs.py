"""rskip.connections needs PyTorch only: its users may have none of rskip's other requirements."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys

OF_RSKIP = ("connections", "cpu", "extras", "formulas", "kernel_forms", "machine", "settings")


class Refuse:
    \"\"\"Finds nothing but the standard library, PyTorch, its requirements, and what connections import.\"\"\"

    allowed = {*sys.stdlib_module_names, "torch", "torchgen", "functorch", "typing_extensions", "sympy", "mpmath",
               "filelock", "networkx", "jinja2", "markupsafe", "fsspec", "setuptools", "triton", "nvidia", "rskip"}

    def find_spec(self, name, path=None, target=None):
        first, *rest = name.split(".")
        if first not in self.allowed or (first == "rskip" and rest and rest[0] not in OF_RSKIP):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


assert not sys.modules.keys() & {"numpy", "yaml", "msgspec", "torch", "rskip"}
sys.meta_path.insert(0, Refuse())
import torch

from rskip.connections import (
    HOST_NEEDS, Place, build_connection, build_stack_connection, list_connections, parse_connection,
)
from rskip.connections import works_on

for missing in ("numpy", "msgspec", "yaml"):
    try:
        __import__(missing)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{missing} is not blocked")

places = {-1: Place("encoder", "ffn", 1, 1, 1, 1, 1), 1: Place("network", "block", 1, 3, 1, 3)}
ran = 0
for family in list_connections():
    norm = "ln" if "ln" in family.norms else family.norms[0]
    spec = parse_connection(("2" if family.factor else "") + family.name + (f"+{norm}" if norm else ""))
    for feature_dim, shape in ((-1, (2, 3, 4)), (1, (2, 4, 3, 3))):
        if not works_on(spec, feature_dim):
            continue
        connection = build_connection(
            spec, 4, feature_dim=feature_dim, place=places[feature_dim], host_supplies=HOST_NEEDS
        )
        x = torch.randn(shape, requires_grad=True)
        stack = build_stack_connection(spec, 4) if feature_dim == -1 else None
        given, kept = connection.before(stack.enter(x) if stack else x)
        state = connection.after(kept, torch.tanh(given))
        y = stack.leave(state) if stack else state
        y.square().sum().backward()
        assert y.shape == x.shape and x.grad.isfinite().all()
        ran += 1
print(ran, len(list_connections()))
"""


def test_every_connection_runs_where_nothing_but_pytorch_is_installed():
    command = [sys.executable, "-W", "ignore", "-c", CODE]  # PyTorch warns that there is no NumPy
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    ran, families = map(int, process.stdout.split())
    assert ran > families >= 27
