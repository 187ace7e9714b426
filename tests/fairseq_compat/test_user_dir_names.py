"""Patch of `--user-dir NAME`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PLUGIN = """
from fairseq.models import register_model_architecture

@register_model_architecture("transformer", "stellar_tiny")
def stellar_tiny(args):
    args.encoder_layers = getattr(args, "encoder_layers", 1)
"""

PARSE = """
import argparse
from fairseq import utils
from fairseq.models import ARCH_MODEL_REGISTRY
for _ in range({times}):
    utils.import_user_module(argparse.Namespace(user_dir={user_dir!r}))
print("stellar_tiny" in ARCH_MODEL_REGISTRY)
"""


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A folder for PYTHONPATH whose package `stellar` registers an architecture in `fairseq_plugin`."""
    package = tmp_path / "site" / "stellar"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "fairseq_plugin.py").write_text(PLUGIN)
    return str(package.parent)


def test_imported_package_is_not_registered_and_its_name_not_found_without_the_patch(python, installed):
    code = "import stellar" + PARSE.format(times=1, user_dir=f"{installed}/stellar")
    code += PARSE.format(times=1, user_dir="stellar")  # in another folder than its own
    process = python(code, without="user-dir", PYTHONPATH=installed)
    assert (process.stdout, process.returncode) == ("False\n", 1)
    assert "FileNotFoundError" in process.stderr


@pytest.mark.parametrize(("first", "fairseq"), [("", True), ("import stellar", True), ("import stellar", False)])
def test_name_of_an_installed_package_works_from_any_folder_and_twice(python, installed, first, fairseq):
    """Whether or not it was imported already, before fairseq or after."""
    process = python(first + PARSE.format(times=2, user_dir="stellar"), fairseq=fairseq, PYTHONPATH=installed)
    assert process.stdout == "True\n", process.stderr


@pytest.mark.parametrize("first", ["", "import stellar"])
def test_a_package_that_lies_beside_fairseq(python, installed, first):
    """As in an environment in which both are installed from wheels."""
    (Path(installed) / "fairseq").symlink_to(Path(importlib.util.find_spec("fairseq").origin).parent)
    process = python(first + PARSE.format(times=2, user_dir="stellar"), fairseq=False, PYTHONPATH=installed)
    assert process.stdout == "True\n", process.stderr


def test_folder_of_that_name_without_a_package_in_it_does_not_stand_in_the_way(python, installed, tmp_path):
    """As a checkout of the project, seen from the folder that it lies in."""
    (tmp_path / "stellar" / "stellar").mkdir(parents=True)
    process = python(PARSE.format(times=1, user_dir="stellar"), PYTHONPATH=installed)
    assert process.stdout == "True\n", process.stderr


def test_folders_work_as_before(python, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(PLUGIN)
    for user_dir in ("mine", "./mine", "folder/../mine"):
        process = python(PARSE.format(times=2, user_dir=user_dir))
        assert process.stdout == "True\n", process.stderr


@pytest.mark.parametrize("user_dir", ["nowhere", "a/nowhere/", "README.md"])
def test_what_is_neither_a_folder_nor_a_package_is_one_line(python, tmp_path, user_dir):
    (tmp_path / "README.md").write_text("")
    process = python(PARSE.format(times=1, user_dir=user_dir))
    line = f"--user-dir is {user_dir}: expected an existing folder or an installed package"
    assert process.stderr.splitlines()[-1] == f"fairseq_compat.one_line_errors.UsageError: {line}"
