"""Wheels and editable installs, by an old and a new pip; what they hold, and fairseq's hook, which neither brings."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.setup.conftest import fresh_environment, run, run_well

OF_GIT = (".git", ".ci/")  # .gitignore, .gitattributes, .github/ too
OF_THE_ROOT = ("constraints.txt", "checkpoints.json")  # and in the package, where it is installed


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A fresh environment's Python, with the pip that comes with Python."""
    python = fresh_environment(tmp_path)
    # builds are not isolated here: they shall use this environment's setuptools, not the one of the new venv
    run_well(python.parent / "pip", "uninstall", "--yes", "setuptools", folder=tmp_path)
    return python


def pip_of(kind: str, python: Path) -> list[str | Path]:
    """The pip that came with Python, or this environment's (the newest, where it is up to date)."""
    if kind == "bundled":
        return [python, "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", python]


@pytest.mark.slow
def test_wheel_holds_tested_versions_and_the_registry_of_models_and_no_start_up_file(wheel: Path, checkout: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {name.partition("/")[0].partition(".")[0] for name in names} == {"rskip", "fairseq_compat", "rskip-0"}
        assert "fairseq_compat/site_files/fairseq_compat.pth" in names and "fairseq_compat.pth" not in names
        assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
        for name in OF_THE_ROOT:
            assert archive.read(f"rskip/{name}") == (checkout / name).read_bytes()
        assert ("rskip/cpu/_kernels.abi3.so" in names) == (shutil.which("cc") is not None)
        assert wheel.name.endswith("-py3-none-any.whl") == (shutil.which("cc") is None)


@pytest.mark.slow
def test_source_distribution_holds_what_git_has(wheel: Path, checkout: Path):
    (source,) = wheel.parent.glob("rskip-*.tar.gz")
    with tarfile.open(source) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    made = {name for name in names if name in ("PKG-INFO", "setup.cfg") or name.startswith("rskip.egg-info/")}
    files = {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()}
    expected = {name for name in files if not name.startswith((*OF_GIT, "rskip.egg-info/", "build/"))}
    assert names - made == expected
    assert {"rskip/cpu/source/library.c", "rskip/cpu/source/kernels.h", "tests/conftest.py"} <= names


@pytest.mark.slow
def test_a_wheel_works_away_from_the_checkout(wheel: Path, tmp_path: Path):
    environment = fresh_environment(tmp_path, "--without-pip")
    run_well(*pip_of("ours", environment), "install", "--no-deps", "--no-compile", wheel, folder=tmp_path)
    assert "prepare" in run_well(environment.parent / "rskip", "--help", folder=tmp_path)
    told = run(environment.parent / "rskip", "doctor", folder=tmp_path)
    assert "  - the start-up hook, which patches fairseq, did not run: run rskip setup-fairseq\n" in told.stdout
    run_well(environment.parent / "rskip", "setup-fairseq", folder=tmp_path)
    assert run_well(environment.parent / "rskip", "doctor", folder=tmp_path).endswith("nothing is wrong\n")
    assert len(run_well(environment.parent / "rskip", "zoo", "list", folder=tmp_path).splitlines()) >= 9


@pytest.mark.slow
def test_a_wheel_loads_models_from_the_address_of_a_release(
    wheel: Path, root: Path, tmp_path: Path, file_server: Callable[[Path], Any]
) -> None:
    """Here that of a clone's files."""
    environment = fresh_environment(tmp_path, "--without-pip")
    run_well(*pip_of("ours", environment), "install", "--no-deps", "--no-compile", wheel, folder=tmp_path)
    (registry,) = tmp_path.glob("fresh/lib/python*/site-packages/rskip/checkpoints.json")
    content = json.loads(registry.read_text("utf-8"))
    registry.write_text(json.dumps({**content, "url": file_server(root).url}), "utf-8")
    code = "import rskip; print(rskip.load('transformer_tiny_2rskip_ln.multi30k.en-de')('A man sleeps.'))"
    hub = str(tmp_path / "hub")
    assert run_well(environment, "-c", code, folder=tmp_path, TORCH_HOME=hub) == "Ein Mann schläft.\n"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_without_a_compiler_that_works_the_wheel_has_no_kernels_and_is_for_every_system(compiler, checkout, tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    run_well(*pip, checkout, folder=tmp_path, CC=compiler)
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        assert [name for name in archive.namelist() if "/_kernels" in name or name.endswith(".so")] == []


@pytest.mark.install
@pytest.mark.parametrize("pip", ["bundled", "ours"])
@pytest.mark.parametrize("install", ["wheel", "editable"])
def test_the_hook_that_setup_fairseq_installs_works_and_is_silent_without_rskip(
    install: str, pip: str, environment: Path, wheel: Path, checkout: Path, tmp_path: Path
):
    what = [wheel] if install == "wheel" else ["--no-build-isolation", "--editable", checkout]
    run_well(*pip_of(pip, environment), "install", "--no-deps", *what, folder=tmp_path)

    assert not json.loads(run_well(environment, "-m", "fairseq_compat.report", folder=tmp_path))["hook"]
    run_well(environment.parent / "rskip", "setup-fairseq", folder=tmp_path)
    report = json.loads(run_well(environment, "-m", "fairseq_compat.report", "rskip", folder=tmp_path))
    assert report["hook"]
    assert {patch["active"] for patch in report["patches"]} == {True}
    assert run_well(environment.parent / "rskip", "--version", folder=tmp_path).startswith("rskip ")
    code = "from rskip.machine.environment import *; print(constraints_file().read_text())"
    assert run_well(environment, "-c", code, folder=tmp_path).startswith("# The versions")

    run_well(*pip_of(pip, environment), "uninstall", "--yes", "rskip", folder=tmp_path)
    process = run(environment, "-c", "print('fine')", folder=tmp_path)
    assert (process.stdout, process.stderr) == ("fine\n", "")


@pytest.mark.install
def test_editable_package_wins_over_a_folder_of_its_name(environment: Path, checkout: Path, tmp_path: Path):
    """`python -m ...` and `python -c` look into the working folder first."""
    pip = pip_of("ours", environment)
    run_well(*pip, "install", "--no-deps", "--no-build-isolation", "--editable", checkout, folder=tmp_path)
    (tmp_path / "rskip" / "rskip").mkdir(parents=True)
    output = run_well(environment, "-c", "import rskip; print(rskip.__file__)", folder=tmp_path)
    assert output == f"{checkout}/rskip/__init__.py\n"
