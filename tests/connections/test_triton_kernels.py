"""Triton's kernels, which its interpreter runs on a CPU, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_kernels_are_those_of_double_precision():
    pytest.importorskip("triton", minversion="3.3")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-x"]
    process = subprocess.run(
        [*command, str(Path(__file__).with_name("triton_cases.py"))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.returncode == 0, process.stdout
