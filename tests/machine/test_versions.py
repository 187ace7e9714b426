"""constraints.txt."""

from __future__ import annotations

import re
from importlib import metadata

import pytest

from rskip.machine.environment import constraints_file, read_tested_versions


def test_this_checkouts_file_is_found(root):
    assert constraints_file() == root / "constraints.txt"


def test_markers_choose_by_python(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text(
        '# tested\nnumpy==2.4.6; python_version >= "3.11"  # newest\n\n'
        'numpy==2.2.6; python_version < "3.11"\na-b==1\n'
    )
    assert read_tested_versions(path, python=(3, 10)) == {"numpy": "2.2.6", "a-b": "1"}
    assert read_tested_versions(path, python=(3, 11)) == read_tested_versions(path, python=(3, 13))
    assert read_tested_versions(path, python=(3, 13)) == {"numpy": "2.4.6", "a-b": "1"}


def test_other_lines_are_refused_with_their_number(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text("a==1\nb>=2\n")
    with pytest.raises(ValueError, match=r"constraints.txt, line 2: expected name==version, got 'b>=2'"):
        read_tested_versions(path)


@pytest.mark.parametrize("python", [(3, 10), (3, 11), (3, 12), (3, 13)])
def test_every_requirement_has_a_tested_version(python):
    """What setup.py requires, extras too, for each Python."""
    required = {re.split(r"[^\w.-]", line)[0].lower() for line in metadata.requires("rskip")}
    assert {"torch", "sacremoses", "omegaconf", "pytest"} <= required
    assert required - {name.lower() for name in read_tested_versions(python=python)} == set()
