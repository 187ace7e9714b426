"""Who may import whom (docs/architecture.md), held against the code's imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FLOORS = [
    {"files", "machine", "settings", "connections", "__version__"},
    {"transformer", "vision"},
    {"checkpoint", "generation", "text", "corpora"},
    {"translation", "captioning", "records"},
    {"tasks"},
    {"zoo", "analysis"},
    {"experiments"},
    {"fairseq_plugin", "cli"},
]
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}
ROOT = Path(__file__).resolve().parent.parent


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every module that the file imports, and whether it does so at the top level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((name, node.col_offset == 0) for name in names)


MODULES = [path for path in sorted((ROOT / "rskip").rglob("*.py")) if path != ROOT / "rskip" / "__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_import_only_from_their_floor_or_below(path):
    package = path.relative_to(ROOT / "rskip").parts[0].removesuffix(".py")
    for name, top_level in imports(path):
        first, _, rest = name.partition(".")
        if first == "rskip" and rest:
            assert FLOOR[rest.split(".")[0]] <= FLOOR[package], f"{path} imports {name}"
        if package in ("connections", "transformer"):
            assert first in {"torch", "rskip", *sys.stdlib_module_names}, f"{path} imports {name}"
        if first in ("fairseq", "fairseq_cli"):
            assert package == "fairseq_plugin", f"{path} imports {name}"
        if first == "torchvision":
            assert not top_level, f"{path} imports {name} at its top"
        if package == "vision":
            assert not name.startswith("rskip.translation"), f"{path} imports {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "fairseq_compat").rglob("*.py")), ids=lambda path: path.name)
def test_fairseq_compat_knows_nothing_of_rskip(path):
    assert not any(name.split(".")[0] == "rskip" for name, _ in imports(path))


def test_importing_rskip_is_cheap():
    code = "import sys, rskip; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "fairseq", "torchvision", "sacrebleu", "sacremoses"} & set(loaded)


@pytest.mark.parametrize("order", ["import rskip, fairseq", "import fairseq, rskip"])
def test_user_dir_registers_the_models_whichever_is_imported_first(order, tmp_path):
    code = f"""
{order}
from argparse import Namespace
from fairseq import utils
for _ in range(2):
    utils.import_user_module(Namespace(user_dir="rskip"))
from fairseq.models import ARCH_MODEL_REGISTRY
assert "transformer_rskip_ln_tiny" in ARCH_MODEL_REGISTRY
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
