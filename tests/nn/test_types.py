"""A user's file is checked by mypy with the package's own types (`py.typed`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("typed_model.py")
WRONG = """
build_connection(2, 8)
Residuals('sas', '8', layers=1)
connection(Tensor())
Residuals('sas', 8, layers=1)[0].ffn(Tensor())
"""
# PyTorch's types, which take mypy half a minute, are left to `make lint`, which checks typed_model.py with them.
SETTINGS = """
[mypy]
strict = True
disallow_subclassing_any = False
[mypy-torch.*,numpy.*]
follow_imports = skip
"""


@pytest.mark.slow  # mypy reads the package first
def test_a_users_file_has_the_packages_types(tmp_path):
    for name, wrong in (("right", ""), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(MODEL.read_text() + wrong)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", "right.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    lines = process.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if ": error:" in line] == ["wrong.py"] * 4, process.stdout
