"""The plug-in's patches of fairseq: declared, installed, left out and reported as fairseq_compat's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fairseq_compat import registry
from fairseq_compat.registry import REGISTRY, add_patches

pytest.importorskip("fairseq")

NAMES = {"dictionaries", "half-precision-adam", "out-of-memory", "profiling-pass", "resumed-models", "run-lock"}
REPORT = "import sys, runpy; sys.argv[1:] = {}; runpy.run_module('fairseq_compat.report', run_name='__main__')"
PLUGIN = """
from fairseq_compat.patch import Patch
from fairseq_compat.registry import add_patches

add_patches([Patch(name="of-a-plugin", symptom="a symptom")])
"""


@pytest.mark.parametrize("without", ["", ",".join(sorted(NAMES))])
def test_the_report_of_a_user_dir_has_its_patches(without: str, tmp_path: Path, forked: Callable) -> None:
    process = forked("-c", REPORT.format(["rskip"]), folder=tmp_path, without=without)
    answer = json.loads(process.stdout)
    inactive = {patch["name"] for patch in answer["patches"] if not patch["active"]}
    assert inactive == set(filter(None, without.split(",")))
    assert {patch["name"] for patch in answer["patches"]} > NAMES


def test_the_report_has_the_patches_of_every_user_dir(tmp_path: Path, forked: Callable) -> None:
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin/__init__.py").write_text(PLUGIN)
    process = forked("-c", REPORT.format(["rskip", str(tmp_path / "plugin")]), folder=tmp_path)
    active = [patch["name"] for patch in json.loads(process.stdout)["patches"] if patch["active"]]
    assert {*active} > NAMES and active[-1] == "of-a-plugin"


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch):
    """A patch that counts how often the module `fairseq_example` was patched."""
    from fairseq_compat.patch import Patch

    monkeypatch.setattr(registry, "REGISTRY", [*REGISTRY])
    monkeypatch.setitem(sys.modules, "fairseq_example", ModuleType("fairseq_example"))

    def count(module: ModuleType) -> None:
        module.__dict__["times"] = module.__dict__.get("times", 0) + 1

    return Patch(name="example", symptom="", after=dict.fromkeys(("fairseq_example", "fairseq.later"), count))


def test_a_module_that_is_imported_already_is_patched_at_once_and_once(patch) -> None:
    for _ in range(2):
        add_patches([patch])
    assert sys.modules["fairseq_example"].times == 1
    assert registry.enabled_patches()[-1] is patch


def test_a_patch_that_is_left_out_is_not_applied(patch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRSEQ_COMPAT_DISABLE", "example")
    add_patches([patch])
    assert not hasattr(sys.modules["fairseq_example"], "times") and registry.REGISTRY[-1] is patch
