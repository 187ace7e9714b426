"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rskip.cli.main import main
from tests.analysis.conftest import few_images, few_pairs

__all__ = ["few_images", "few_pairs"]
Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """`refused(message, *words)`: the command prints nothing, and ends with one line that has the message in it."""

    def refused(message: str, *words: object) -> str:
        capsys.readouterr()
        assert main([*map(str, words)]) == 2, words
        printed, error = capsys.readouterr()
        *progress, line = error.splitlines()
        assert not printed and line.startswith(f"rskip {words[0]}") and ": error: " in line and message in line, error
        assert all(each.startswith(("epoch ", "comput")) for each in progress), error
        return line

    return refused
