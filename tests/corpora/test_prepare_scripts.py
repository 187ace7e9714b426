"""scripts/prepare-*.sh: the names that fairseq's users look for, and the corpora that they stand for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from rskip.corpora import CORPORA

SCRIPTS = {
    "prepare-iwslt14.sh": "iwslt14-de-en",
    "prepare-iwslt15-en-vi.sh": "iwslt15-en-vi",
    "prepare-multi30k.sh": "multi30k-en-de",
    "prepare-wmt14-en2de.sh": "wmt14-en-de",
    "prepare-wmt14-en2fr.sh": "wmt14-en-fr",
}


def test_scripts_prepare_their_corpora_with_the_options_they_are_given(root: Path, tmp_path: Path) -> None:
    """By the checkout's command, or else by an installed one; without either they say so."""
    scripts = Path(shutil.copytree(root / "scripts", tmp_path / "checkout/scripts"))
    assert sorted(path.name for path in scripts.glob("prepare-*.sh")) == list(SCRIPTS)
    assert set(SCRIPTS.values()) <= set(CORPORA)

    def said(script: str, *arguments: str, path: str = os.environ["PATH"]) -> str:
        env = {"PATH": path}
        process = subprocess.run([scripts / script, *arguments], capture_output=True, text=True, env=env)
        return process.stdout or process.stderr

    for script in SCRIPTS:
        assert said(script, path="/usr/bin:/bin") == f"{script}: error: no rskip command: run `make` first\n"
    for folder, arguments in ((tmp_path / "bin", []), (scripts.parent / ".venv/bin", ["--mirror", "a b"])):
        folder.mkdir(parents=True)
        (folder / "rskip").write_text('#!/bin/sh\necho "$@"\n')  # says how it was called
        (folder / "rskip").chmod(0o755)
        for script, corpus in SCRIPTS.items():
            printed = said(script, *arguments, path=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
            assert printed == " ".join(["prepare", corpus, *arguments]) + "\n"
    # the pair of languages, of Multi30k alone
    assert said("prepare-multi30k.sh", "en", "fr", "--offline") == "prepare multi30k-en-fr --offline\n"
