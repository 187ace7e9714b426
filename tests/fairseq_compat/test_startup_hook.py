"""The start-up hook: in every process, at no cost, and nothing but an import hook; the report of what is patched."""

from __future__ import annotations

import json
import pkgutil
import sys

import pytest

import fairseq_compat.startup
from fairseq_compat.patches import PATCHES
from fairseq_compat.registry import enabled_patches


def test_every_process_has_the_hook_and_nothing_more(bare_python):
    process = bare_python(
        """
        import sys
        from fairseq_compat.startup import FairseqFinder
        names = {"torch", "numpy", "fairseq", "fairseq_compat.patches", "fairseq_compat.registry"}
        print(sys.meta_path[0] is FairseqFinder, sorted(names & set(sys.modules)))
        import xml
        print("fairseq_compat.registry" in sys.modules)
        """
    )
    assert process.stdout == "True []\nFalse\n", process.stderr


def test_isolated_process_has_the_hook(bare_python):
    """-I drops PYTHONPATH and the working folder: what is left is the environment's own site-packages."""
    code = "import sys; print(any(getattr(f, '__name__', '') == 'FairseqFinder' for f in sys.meta_path))"
    assert bare_python(code, "-I").stdout == "True\n"


def test_register_twice_is_once(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [])
    fairseq_compat.startup.register()
    fairseq_compat.startup.register()
    assert sys.meta_path == [fairseq_compat.startup.FairseqFinder]


def test_start_file_names_the_callable(root):
    """Python 3.15 resolves each line of a .start file and calls it."""
    lines = (root / "fairseq_compat" / "site_files" / "fairseq_compat.start").read_text().splitlines()
    assert [pkgutil.resolve_name(line) for line in lines] == [fairseq_compat.startup.register]


def test_pth_line_is_silent_where_the_package_is_gone(root, bare_python):
    line = (root / "fairseq_compat" / "site_files" / "fairseq_compat.pth").read_text()
    assert line.startswith("import ") and line.count("\n") == 1
    process = bare_python(f"import sys; sys.modules['fairseq_compat'] = None\nexec({line!r})\nprint('on')")
    assert (process.stdout, process.stderr) == ("on\n", "")


def test_disabled_patches_are_left_out(monkeypatch):
    monkeypatch.setenv("FAIRSEQ_COMPAT_DISABLE", "bf16, user-dir")
    assert {patch.name for patch in PATCHES} - {patch.name for patch in enabled_patches()} == {"bf16", "user-dir"}
    monkeypatch.setenv("FAIRSEQ_COMPAT_DISABLE", "all")
    assert enabled_patches() == []


@pytest.mark.slow
def test_fairseq_imports_in_a_bare_process_and_patched_modules_keep_loader_and_source(bare_python):
    process = bare_python(
        """
        import inspect, fairseq.options
        print(fairseq.__version__)
        from importlib.machinery import SourceFileLoader
        print(type(fairseq.options.__loader__) is SourceFileLoader)
        print(inspect.getsource(fairseq.options).startswith("# Copyright"))
        """
    )
    assert process.stdout == "0.12.2\nTrue\nTrue\n", process.stderr


NAMES = [patch.name for patch in PATCHES]


def report(python, without: str = "") -> dict:
    process = python(
        "import runpy; runpy.run_module('fairseq_compat.report', run_name='__main__')",
        fairseq=False, without=without,
    )  # fmt: skip
    return json.loads(process.stdout)


def active(answer: dict) -> dict[str, bool]:
    return {patch["name"]: patch["active"] for patch in answer["patches"]}


def test_every_patch_is_active(python):
    answer = report(python)
    assert active(answer) == dict.fromkeys(NAMES, True)
    patches = [{"name": patch.name, "symptom": patch.symptom, "active": True} for patch in PATCHES]
    assert answer == {"hook": True, "fairseq": "0.12.2", "patches": patches}


def test_a_patch_left_out_is_told_from_the_others(python):
    """Two halves of the patches, so that each is seen active beside inactive ones."""
    others = [name for name in NAMES if name != "dataclass-defaults"]
    for half in (others[::2], others[1::2]):
        patches = active(report(python, without=",".join(half)))
        assert patches == {name: name not in half for name in NAMES}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 lets fairseq's dataclasses pass")
def test_failing_import_is_told(python):
    answer = report(python, without="dataclass-defaults")
    assert answer["fairseq"] is None
    assert "use default_factory" in answer["error"]
    assert active(answer) == dict.fromkeys(NAMES, False)
