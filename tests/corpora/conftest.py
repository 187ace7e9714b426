"""Small corpora in files."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rskip.corpora.corpus import ParallelText, PrepareDefaults, PublishedCorpus, Text, UpstreamFile
from rskip.files.checksum import sha256_file

ENGLISH = ["A dog runs.", "The man's dog-sled is “new”.", "Two men run.", "They see him.", "He runs."]
GERMAN = [
    "Ein Hund läuft.",
    "Sein Schlitten ist „neu“.",
    "Zwei Männer laufen.",
    "Sie sehen ihn.",
    "Er läuft.",
]
COUNTS = {"train": 5, "val": 3, "test": 2}

MakeCorpus = Callable[..., PublishedCorpus]


def write_gz(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, mtime=0))


def lines(sentences: list[str]) -> bytes:
    return "".join(sentence + "\n" for sentence in sentences).encode()


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, by their paths in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A folder with the six files of a small corpus."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    for split, count in COUNTS.items():
        write_gz(folder / f"{split}.en.gz", lines(ENGLISH[:count]))
        write_gz(folder / f"{split}.de.gz", lines(GERMAN[:count]))
    return folder


@pytest.fixture
def make_corpus(mirror: Path) -> MakeCorpus:
    """Gives the corpus of `mirror` as it is at that moment: its sums are those of the files then."""

    def make(
        *,
        url: str = "http://localhost:1",
        counts: dict[str, int] = COUNTS,
        defaults: PrepareDefaults = PrepareDefaults(size=20),  # noqa: B008 (frozen)
    ) -> PublishedCorpus:
        def parallel(split: str) -> tuple[ParallelText]:
            names = {language: f"{split}.{language}.gz" for language in ("en", "de")}
            sides = {
                language: Text(file=UpstreamFile(name=name, url=f"{url}/{name}", sha256=sha256_file(mirror / name)))
                for language, name in names.items()
            }
            return (ParallelText(name=f"tiny-{split}", sides=sides, sentences=counts[split]),)

        return PublishedCorpus(
            name="tiny-en-de",
            source="en",
            target="de",
            homepage="nowhere",
            licence="none",
            citation="none",
            defaults=defaults,
            folder="tiny",
            splits={"train": parallel("train"), "valid": parallel("val"), "test": parallel("test")},
        )

    return make


@pytest.fixture
def server(mirror: Path, file_server: Callable[[Path], Any]) -> Any:
    """A running server of `mirror`."""
    return file_server(mirror)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "bin/tiny"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of fairseq-preprocess, a script that writes sentence counts and the dictionary that it was given."""
    (tmp_path / "python").mkdir()
    command = tmp_path / "python/fairseq-preprocess"
    command.write_text(
        f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
import struct, sys
from pathlib import Path
after = dict(zip(sys.argv, sys.argv[1:]))
source, target, out = after["--source-lang"], after["--target-lang"], Path(after["--destdir"])
out.mkdir(exist_ok=True)
for kind in ("train", "valid", "test"):
    prefixes = after[f"--{{kind}}pref"].split(",") if f"--{{kind}}pref" in after else []
    for number, prefix in enumerate(prefixes):
        for language in (source, target):
            count = Path(prefix + "." + language).read_bytes().count(b"\\n")
            header = b"MMIDIDX\\0\\0" + struct.pack("<QBQ", 1, 8, count)
            (out / f"{{kind}}{{number or ''}}.{{source}}-{{target}}.{{language}}.idx").write_bytes(header)
for language in (source, target):
    (out / f"dict.{{language}}.txt").write_bytes(Path(after["--srcdict"]).read_bytes())
"""
    )
    command.chmod(0o755)
    resource_tracker.ensure_running()  # which workers need, by the real Python
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python/python"))
    return command


@pytest.fixture
def forked_preprocess(forked: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks fairseq-preprocess, which is faster; test_preparation_of_real_corpora.py starts it once as users do."""

    class Forked:
        def __init__(self, command: Sequence[str], **_: object) -> None:
            done = forked(*command, folder=Path.cwd())
            self.returncode, self._printed = done.returncode, (done.stdout.encode(), done.stderr.encode())

        def communicate(self) -> tuple[bytes, bytes]:
            return self._printed

        def __enter__(self) -> Forked:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("rskip.corpora.binarise.subprocess", SimpleNamespace(PIPE=None, Popen=Forked))
