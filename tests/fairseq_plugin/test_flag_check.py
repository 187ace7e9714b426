"""What fairseq's own parser would refuse is refused before any work, and the setting is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.experiments.recipe import load_recipe
from rskip.settings.errors import SettingError
from rskip.tasks.fairseq.flags import check_fairseq_flags
from rskip.translation.training import fairseq_flags

pytest.importorskip("fairseq", reason="needs fairseq: run `rskip setup-fairseq`")
RECIPE = Path(__file__).parents[2] / "recipes/multi30k_en_de.yaml"


def refusal(override: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of changes of the recipe, separated by spaces, by the parser of this process."""
    from rskip.fairseq_plugin.flag_check import refusal

    def run(command: list[str], *, input: str, **options: object) -> subprocess.CompletedProcess[str]:
        assert command[0] == sys.executable and command[2] == "rskip.fairseq_plugin.flag_check"
        found = {name: refusal(**each) for name, each in json.loads(input).items()}
        return subprocess.CompletedProcess(command, 0, json.dumps({name: why for name, why in found.items() if why}))

    recipe = load_recipe(RECIPE, variant="sas", overrides=override.split())
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SettingError) as caught:
        patch.setattr(sys, "argv", sys.argv)
        patch.setattr(subprocess, "run", run)
        check_fairseq_flags(fairseq_flags(recipe.settings))
    assert "\n" not in str(caught.value) and capsys.readouterr() == ("", "")
    return str(caught.value)


def test_flags_that_fairseq_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    for override, message in (
        ("train.lr=x", "train.lr is 'x', which fairseq-train refuses ("),
        ("train.zz=1", "train.zz is 1, which fairseq-train refuses (unrecognized arguments: --zz 1)"),
        ("train.lrr=1", "train.lrr is 1, which fairseq-train refuses (unrecognized arguments: --lrr 1; did you mean"),
        ("train.arch=transformer train.connection=sas",
         "train.connection is 'sas', which fairseq-train refuses (--connection needs an architecture of rskip, such"),
        ("train.bf16=3", "train.bf16 is 3, which fairseq-train refuses (unrecognized arguments: 3)"),
        ("train.arch=--help", "train.arch is '--help', which fairseq-train refuses (argument --arch"),
        ("train.dropout=2", "train.dropout is 2, which fairseq-train refuses (--dropout is 2.0: expected a prob"),
        ("generate.zz=1", "generate.zz is 1, which fairseq-generate refuses (unrecognized arguments: --zz 1)"),
        ("generate.help=true", "generate.help is True, which fairseq-generate refuses (it prints help and exits)"),
    ):  # fmt: skip
        assert refusal(override, capsys).startswith(message), override


def test_the_process_that_asks_fairseq(forked: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], *, input: str, **options: object) -> subprocess.CompletedProcess[str]:
        assert command[:2] == [sys.executable, "-m"] and options == {"capture_output": True, "text": True}
        code = f"import runpy; runpy.run_module({command[2]!r}, run_name='__main__')"
        return forked("-c", code, folder=tmp_path, text=input)

    monkeypatch.setattr(subprocess, "run", run)
    recipe, wrong = (load_recipe(RECIPE, variant="sas", overrides=each) for each in ([], ["train.max-epoch=x"]))
    with pytest.raises(SettingError, match="^train.max-epoch is 'x', which fairseq-train refuses"):
        check_fairseq_flags([each for one in (recipe, wrong) for each in fairseq_flags(one.settings)])
