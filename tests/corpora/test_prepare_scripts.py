"""scripts/prepare-*.sh: the names that fairseq's users look for, and the corpora that they stand for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rskip.corpora import CORPORA

SCRIPTS = {
    "prepare-iwslt14.sh": "iwslt14-de-en",
    "prepare-iwslt15-en-vi.sh": "iwslt15-en-vi",
    "prepare-multi30k.sh": "multi30k-en-de",
    "prepare-wmt14-en2de.sh": "wmt14-en-de",
    "prepare-wmt14-en2fr.sh": "wmt14-en-fr",
}


def make_rskip(path: Path) -> None:
    """A command that only says how it was called."""
    path.parent.mkdir(parents=True)
    path.write_text('#!/bin/sh\necho "$@"\n')
    path.chmod(0o755)


@pytest.fixture
def scripts(root: Path, tmp_path: Path) -> Path:
    """The folder of scripts, in a checkout of its own."""
    return Path(shutil.copytree(root / "scripts", tmp_path / "checkout/scripts"))


def test_every_script_is_here(scripts: Path) -> None:
    assert sorted(path.name for path in scripts.glob("prepare-*.sh")) == list(SCRIPTS)
    assert set(SCRIPTS.values()) <= set(CORPORA)


def test_scripts_prepare_their_corpora_with_the_options_they_are_given(scripts: Path, tmp_path: Path) -> None:
    """By the checkout's command, or else by an installed one."""
    make_rskip(tmp_path / "bin/rskip")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for script, corpus in SCRIPTS.items():
        process = subprocess.run([scripts / script], capture_output=True, text=True, env={"PATH": path}, check=True)
        assert process.stdout == f"prepare {corpus}\n"
    make_rskip(scripts.parent / ".venv/bin/rskip")
    for script, corpus in SCRIPTS.items():
        process = subprocess.run([scripts / script, "--mirror", "a b"], capture_output=True, text=True, check=True)
        assert process.stdout == f"prepare {corpus} --mirror a b\n"
    arguments = ["en", "fr", "--mirror", "a b"]  # the pair of languages, of Multi30k alone
    process = subprocess.run([scripts / "prepare-multi30k.sh", *arguments], capture_output=True, text=True, check=True)
    assert process.stdout == "prepare multi30k-en-fr --mirror a b\n"


def test_no_command_is_one_line(scripts: Path) -> None:
    for script in SCRIPTS:
        process = subprocess.run([scripts / script], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
        assert process.returncode == 2
        assert process.stderr == f"{script}: error: no rskip command: run `make` first\n"
