"""`python -m fairseq_compat.report`, from which `rskip doctor` reads."""

from __future__ import annotations

import json
import sys

import pytest

from fairseq_compat.patches import PATCHES

NAMES = [patch.name for patch in PATCHES]


def report(python, without: str = "") -> dict:
    process = python(
        "import runpy; runpy.run_module('fairseq_compat.report', run_name='__main__')",
        fairseq=False, without=without,
    )  # fmt: skip
    return json.loads(process.stdout)


def test_every_patch_is_active(python):
    assert report(python) == {"hook": True, "fairseq": "0.12.2", "patches": dict.fromkeys(NAMES, True)}


def test_a_patch_left_out_is_told_from_the_others(python):
    """Two halves of the patches, so that each is seen active beside inactive ones."""
    others = [name for name in NAMES if name != "dataclass-defaults"]
    for half in (others[::2], others[1::2]):
        patches = report(python, without=",".join(half))["patches"]
        assert patches == {name: name not in half for name in NAMES}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 lets fairseq's dataclasses pass")
def test_failing_import_is_told(python):
    answer = report(python, without="dataclass-defaults")
    assert answer["fairseq"] is None
    assert "use default_factory" in answer["error"]
