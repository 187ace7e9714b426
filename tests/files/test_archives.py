"""Single files out of archives: good ones, damaged ones and malicious ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.files.archives import BLOCK, extract

TEXTS = {
    "training/europarl-v7.de-en.de": b"Ein Hund.\n" * 5000,
    "training/europarl-v7.de-en.en": b"A dog.\n" * 5000,
    "training/europarl-v7.fr-en.fr": b"Un chien.\n",
}
GERMAN, ENGLISH, FRENCH = TEXTS
SUFFIXES = [".tgz", ".tar.gz", ".tar", ".tar.bz2", ".tar.xz", ".zip"]


def tar_member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, link
    return info


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Writes `texts` into an archive whose kind its name says, each member's with `prefix`."""

    def make(name: str = "corpus.tgz", texts: dict[str, bytes] = TEXTS, prefix: str = "") -> Path:
        path = tmp_path / name
        if name.endswith(".zip"):
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for member, content in texts.items():
                    archive.writestr(prefix + member, content)
            return path
        modes = {".tar": "w", ".bz2": "w:bz2", ".xz": "w:xz"}
        members = [(tar_member(prefix + member, content), content) for member, content in texts.items()]
        return write_tar(path, *members, mode=modes.get(path.suffix, "w:gz"))

    return make


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


@pytest.mark.parametrize("prefix", ["", "./"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_the_named_members(make: Any, tmp_path: Path, suffix: str, prefix: str) -> None:
    out = tmp_path / "out"
    extracted = extract(make(f"corpus{suffix}", prefix=prefix), [ENGLISH, GERMAN], out)
    assert extracted == {ENGLISH: out / ENGLISH, GERMAN: out / GERMAN}
    assert {member: path.read_bytes() for member, path in extracted.items()} == {
        member: TEXTS[member] for member in (ENGLISH, GERMAN)
    }
    assert files(out) == [GERMAN, ENGLISH]


def test_kind_is_not_taken_from_the_name(make: Any, tmp_path: Path, synced: list[str]) -> None:
    archive = make("corpus.zip").rename(tmp_path / "corpus.tgz")
    assert extract(archive, [FRENCH], tmp_path / "out")[FRENCH].read_bytes() == TEXTS[FRENCH]
    assert synced == [Path(FRENCH).name]  # whole on the disk before the folder has its name


def test_a_folder_that_has_the_members_is_kept_and_another_is_replaced(make: Any, tmp_path: Path) -> None:
    archive, out = make(), tmp_path / "out"
    extract(archive, [ENGLISH], out)
    (out / ENGLISH).write_bytes(b"kept")
    assert extract(archive, [ENGLISH], out)[ENGLISH].read_bytes() == b"kept"
    extract(archive, [FRENCH, ENGLISH], out)
    assert files(out) == [ENGLISH, FRENCH] and (out / ENGLISH).read_bytes() == TEXTS[ENGLISH]


@pytest.mark.parametrize("suffix", [".tgz", ".tar", ".zip"])
def test_missing_member_names_the_nearest(make: Any, tmp_path: Path, suffix: str) -> None:
    message = rf"corpus\{suffix} has no file 'training/europarl-v7\.en-de\.en': did you mean '{ENGLISH}'\?"
    with pytest.raises(ValueError, match=message):
        extract(make(f"corpus{suffix}"), [GERMAN, "training/europarl-v7.en-de.en"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", [".tgz", ".zip"])
def test_unasked_members_go_nowhere(make: Any, tmp_path: Path, suffix: str) -> None:
    archive = make(f"evil{suffix}", {"../evil": b"evil", f"{tmp_path}/evil": b"evil", ENGLISH: b"good"})
    extract(archive, [ENGLISH], tmp_path / "out")
    assert files(tmp_path) == [f"evil{suffix}", f"out/{ENGLISH}"]


def test_what_is_not_an_ordinary_file_is_not_extracted(tmp_path: Path) -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE):
        info = tar_member("a", kind=kind, link="/etc/passwd" if kind == tarfile.SYMTYPE else "good")
        archive = write_tar(tmp_path / "evil.tgz", (tar_member("good", b"good"), b"good"), (info, b""))
        with pytest.raises(ValueError, match="has no file 'a'"):
            extract(archive, ["good", "a"], tmp_path / "out")
    zipped = zipfile.ZipInfo("a")
    zipped.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive_file:
        archive_file.writestr(zipped, "/etc/passwd")
    with pytest.raises(ValueError, match="has no file 'a'"):
        extract(tmp_path / "evil.zip", ["a"], tmp_path / "out")
    assert files(tmp_path) == ["evil.tgz", "evil.zip"]


DAMAGED = r"is damaged,? (or )?truncated"


@pytest.mark.parametrize("size", [300_000, 3 * BLOCK])  # read at once, and in several blocks
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_cut_archive(make: Any, tmp_path: Path, suffix: str, size: int) -> None:
    archive = make(f"corpus{suffix}", {GERMAN: os.urandom(size), ENGLISH: TEXTS[ENGLISH]})
    os.truncate(archive, archive.stat().st_size // 2)
    with pytest.raises(ValueError, match=rf"corpus\{suffix} {DAMAGED}"):
        extract(archive, [GERMAN], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", [".tgz", ".tar.bz2", ".tar.xz", ".zip"])
def test_damaged_archive(make: Any, tmp_path: Path, suffix: str) -> None:
    """One bit in the middle, which only the checksum shows; also where the damage is in another member of a tar."""
    archive = make(f"corpus{suffix}", {GERMAN: os.urandom(300_000), ENGLISH: b"A dog.\n"})
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=rf"corpus\{suffix} {DAMAGED}"):
        extract(archive, [GERMAN if suffix == ".zip" else ENGLISH], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_checksum_right_behind_a_block(make: Any, tmp_path: Path) -> None:
    """The tar ends where a block that is read at once does, so that only reading on finds the wrong checksum."""
    header, end = 512, 1024
    archive = make(texts={ENGLISH: b"\n" * (5 * BLOCK - header - end)})
    content = bytearray(archive.read_bytes())
    content[-5] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=rf"corpus\.tgz {DAMAGED}"):
        extract(archive, [ENGLISH], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", b"<html>" * 1000, b"PK\x03\x04" + b"x" * 1000]
    + [pack(b"no tar" * 1000) for pack in (gzip.compress, bz2.compress, lzma.compress)],
    ids=["empty", "text", "html", "damaged zip", "gzip", "bzip2", "xz"],
)
def test_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tgz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.tgz ({DAMAGED}|has no file 'a')"):
        extract(tmp_path / "a.tgz", ["a"], tmp_path / "out")


def test_a_disk_that_fills_up_or_a_kill_leaves_all_members_or_none(
    make: Any, tmp_path: Path, failing_everywhere: Any, killed_everywhere: Any
) -> None:
    """Wherever it happens; the next call extracts them and leaves nothing else."""
    contents = {"a": b"first\n", "b": b"second\n"}
    archive, out = make(texts=contents), tmp_path / "work/out"
    out.parent.mkdir()
    for error in failing_everywhere(lambda: extract(archive, ["a", "b"], out)):
        assert files(out) == ([] if error else ["a", "b"])
        shutil.rmtree(out, ignore_errors=True)
    for _ in killed_everywhere(out.parent, lambda: extract(archive, ["a", "b"], out)):
        assert files(out) in ([], ["a", "b"])
        extracted = extract(archive, ["a", "b"], out)
        assert {name: path.read_bytes() for name, path in extracted.items()} == contents
        assert files(out.parent) == ["out/a", "out/b"]
