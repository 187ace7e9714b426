"""`rskip doctor`: what it shows and calls wrong, what it says to do, and its exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from fairseq_compat.patches import PATCHES
from rskip.cli import doctor
from rskip.cli.doctor import Findings
from rskip.cli.main import main
from rskip.cpu.library import Found

NAMES = [patch.name for patch in PATCHES]


@pytest.fixture
def answer(monkeypatch):
    """Makes the fresh process answer this about the patches."""

    def install(*inactive: str, **changes) -> None:
        patches = [
            {"name": patch.name, "symptom": patch.symptom, "active": patch.name not in inactive} for patch in PATCHES
        ]
        report = {"hook": True, "fairseq": "0.12.2", "patches": patches, **changes}
        process = SimpleNamespace(returncode=0, stdout=json.dumps(report), stderr="")
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: process)

    return install


@pytest.fixture
def installed(monkeypatch):
    """Changes what is said to be installed: a version, or None for a package that is not."""
    real = metadata.version

    def change(**versions: str | None) -> None:
        changed = {name.replace("_", "-"): version for name, version in versions.items()}

        def version(package: str) -> str:
            if changed.get(package, "") is None:
                raise metadata.PackageNotFoundError(package)
            return changed.get(package) or real(package)

        monkeypatch.setattr(metadata, "version", version)

    return change


def findings(look) -> Findings:
    found = Findings()
    look(found)
    return found


def test_patches_are_shown(answer):
    answer("bf16")
    found = findings(doctor.check_fairseq)
    assert [line.split()[1:] for line in found.lines if line.startswith("  bf16")] == [["NOT", "active"]]
    assert sum(line.endswith(" active") and "NOT" not in line for line in found.lines) == len(NAMES) - 1
    assert len(found.wrong) == 1
    assert "the patch bf16 is not active" in found.wrong[0]
    assert "--tpu" in found.wrong[0]


def test_another_fairseq_and_missing_needs(answer, installed):
    answer()
    installed(fairseq="0.12.3", bitarray=None)
    assert findings(doctor.check_fairseq).wrong == [
        "fairseq 0.12.3 is installed, but the patches are for 0.12.2: run rskip setup-fairseq",
        "fairseq needs bitarray>=2.8: run rskip setup-fairseq",
    ]


def test_missing_hook_and_failing_import(answer):
    answer(*NAMES, hook=False, fairseq=None, error="ValueError: mutable\ndefault")
    found = findings(doctor.check_fairseq)
    assert sum(line.endswith(" NOT active") for line in found.lines) == len(NAMES)
    wrong = found.wrong
    assert wrong[0] == "the start-up hook, which patches fairseq, did not run: run rskip setup-fairseq"
    assert wrong[1] == "fairseq can't be imported (ValueError: mutable default): run rskip setup-fairseq"
    assert len(wrong) == 2


def test_unknown_patches_to_leave_out_are_wrong(answer, monkeypatch):
    answer()
    monkeypatch.setenv("FAIRSEQ_COMPAT_DISABLE", "bf16, cpu-dpp,foo,all,")
    assert findings(doctor.check_fairseq).wrong == [
        "FAIRSEQ_COMPAT_DISABLE names unknown patches, which have no effect: cpu-dpp (did you mean 'cpu-ddp'?), foo; "
        "for patches of a plug-in, give its folder with --user-dir"
    ]


def test_patches_that_can_not_be_examined(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stderr="Traceback\n  ...\nImportError: no module")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: failed)
    (wrong,) = findings(doctor.check_fairseq).wrong
    assert wrong.startswith("the patches can't be checked (ImportError: no module): reinstall rskip")


def test_untested_version_is_worth_knowing_and_not_wrong(installed):
    installed(regex="2020.1.1")
    found = findings(doctor.check_packages)
    assert found.wrong == []
    assert any(note.startswith("regex 2020.1.1 is not the tested version 20") for note in found.notes)
    (line,) = [line for line in found.lines if line.startswith("tested versions")]
    assert " have another, see below" in line


def test_missing_requirement_is_wrong(installed):
    installed(msgspec=None)
    assert findings(doctor.check_packages).wrong == ['msgspec is missing: pip install "msgspec>=0.21"']


def test_extras_are_shown_and_a_missing_one_is_not_wrong(installed, root):
    installed(sacremoses=None)
    found = findings(doctor.check_extras)
    assert found.wrong == found.notes == []
    extras, others = found.lines
    assert {"vision", "plots", "onnx", "zstd"} < {*re.split(", | +", extras)}
    assert others == f'{"other extras":<20} translate, translation, captioning, fairseq: pip install -e "{root}[EXTRA]"'


def test_unknown_variables_are_worth_knowing(monkeypatch):
    for variable in ("RSKIP_OFFLINE", "RSKIP_OFLINE", "RSKIP_ZZZ"):
        monkeypatch.setenv(variable, "1")
    notes = findings(doctor.check_variables).notes
    assert "rskip doesn't read the environment variable RSKIP_OFLINE (did you mean 'RSKIP_OFFLINE'?)" in notes
    assert "rskip doesn't read the environment variable RSKIP_ZZZ" in notes
    assert not any("variable RSKIP_OFFLINE" in note for note in notes)


def test_a_user_dir_is_shown_or_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in (("whole_user_dir", ""), ("broken_user_dir", "1 / 0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    found = Findings()
    assert doctor.check_user_dir(found, None) is None and found == Findings()
    assert doctor.check_user_dir(found, str(tmp_path / "whole_user_dir")) == str(tmp_path / "whole_user_dir")
    assert found.lines == [f"{'user-dir':<20} {tmp_path / 'whole_user_dir'}"] and not found.wrong
    monkeypatch.setenv("RSKIP_USER_DIR", str(tmp_path / "broken_user_dir"))
    assert doctor.check_user_dir(found, None) is None
    reason = "can't be imported (ZeroDivisionError: division by zero)"
    assert found.wrong == [f"RSKIP_USER_DIR is {tmp_path / 'broken_user_dir'}, which {reason}"]


def test_the_known_variables_are_those_in_the_code(root):
    texts = [path.read_text(encoding="utf-8") for path in (root / "rskip").rglob("*.py")]
    assert {name for text in texts for name in re.findall(r'"RSKIP_([A-Z_]+)"', text)} == {*doctor.VARIABLES}


def kernel_findings(*, pytorch: bool) -> Findings:
    return findings(lambda found: doctor.check_kernels(found, pytorch=pytorch))


@pytest.mark.parametrize("pytorch", [True, False])
def test_kernels_and_their_int8_are_shown(monkeypatch, pytorch):
    for largest, words in ((127, "8-bit weights"), (64, "7-bit weights, as"), (0, "none")):
        kernels = SimpleNamespace(instructions="AVX2", largest_weight=largest)
        monkeypatch.setattr(doctor, "find_library", lambda kernels=kernels: Found(kernels))
        found = kernel_findings(pytorch=pytorch)
        assert found.lines[0] == "compiled kernels     with AVX2 instructions"
        assert found.lines[1].startswith(f"int8 on the CPU      {words}")
        assert found.wrong == found.notes == []


def test_missing_kernels_are_wrong_only_without_pytorch(monkeypatch):
    monkeypatch.setattr(doctor, "find_library", lambda: Found(None, "RSKIP_NATIVE=off"))
    found = kernel_findings(pytorch=True)
    assert found.wrong == []
    assert found.notes == ["translation uses PyTorch without the compiled kernels: RSKIP_NATIVE=off"]
    found = kernel_findings(pytorch=False)
    (wrong,) = found.wrong
    beginning = "translation needs the compiled kernels or PyTorch: RSKIP_NATIVE=off; or install the extra torch with "
    assert wrong.startswith(beginning)
    assert found.lines == ["compiled kernels     none"]


def test_this_environment_is_fine(capsys):
    """All of it, with a real process: the environment that runs the tests has every patch in force."""
    assert doctor.run(SimpleNamespace(user_dir=None)) == 0
    shown = dict(
        line.strip().split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if "  " in line
    )
    assert shown["fairseq"] == "0.12.2"
    assert {shown[name] for name in [*(patch.name for patch in PATCHES), "run-lock"]} == {"active"}


def test_a_wrong_user_dir_is_a_finding(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RSKIP_USER_DIR", str(tmp_path))
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.gz").write_bytes(bytes(2_500_000))
    monkeypatch.setattr("rskip.cli.doctor.check_fairseq", lambda findings, user_dir: None)
    assert main(["doctor"]) == 1
    out, error = capsys.readouterr()
    assert error == "" and out.endswith(
        f"wrong:\n  - RSKIP_USER_DIR is '{tmp_path}': expected an existing folder with an __init__.py\n"
    )
    assert re.search(rf"\ndownloads +{tmp_path}/data \(2\.5 MB", out)
