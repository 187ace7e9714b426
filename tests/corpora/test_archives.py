"""Single files out of archives: good ones, damaged ones and malicious ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.corpora import archives
from rskip.corpora.archives import extract

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
    """Everything that lies in the folder but the record of what was extracted."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return sorted(name for name in found if not (name.startswith(".") and name.endswith(".json")))


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


def test_kind_is_not_taken_from_the_name(make: Any, tmp_path: Path) -> None:
    archive = make("corpus.zip").rename(tmp_path / "corpus.tgz")
    assert extract(archive, [FRENCH], tmp_path / "out")[FRENCH].read_bytes() == TEXTS[FRENCH]


def test_real_texts(shared: Path, tmp_path: Path) -> None:
    """WMT's samples in an archive of WMT's structure, and giga-fren's: packed files in a plain tar."""
    sample = {language: shared / f"data/wmt14/train-sample-a.tok.{language}.gz" for language in ("en", "de")}
    with tarfile.open(tmp_path / "training.tgz", "w:gz") as tar:
        for language, path in sample.items():
            content = gzip.decompress(path.read_bytes())
            tar.addfile(tar_member(f"training/europarl-v7.de-en.{language}", content), io.BytesIO(content))
    with tarfile.open(tmp_path / "giga.tar", "w") as tar:
        for language, path in sample.items():
            tar.add(path, f"giga-fren.release2.fixed.{language}.gz")
    plain = extract(tmp_path / "training.tgz", [ENGLISH, GERMAN], tmp_path / "out")
    packed = extract(
        tmp_path / "giga.tar", ["giga-fren.release2.fixed.en.gz", "giga-fren.release2.fixed.de.gz"], tmp_path / "out"
    )
    for language, path in sample.items():
        assert packed[f"giga-fren.release2.fixed.{language}.gz"].read_bytes() == path.read_bytes()
        member = f"training/europarl-v7.de-en.{language}"
        assert plain[member].read_bytes() == gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("suffix", [".tgz", ".zip"])
def test_extracted_members_are_kept(make: Any, tmp_path: Path, suffix: str) -> None:
    """Until the archive is another one, or they are."""
    archive, out = make(f"corpus{suffix}"), tmp_path / "out"
    extract(archive, [ENGLISH], out)
    (out / ENGLISH).write_bytes(b"kept:.\n" * 5000)
    assert extract(archive, [ENGLISH, GERMAN], out)[ENGLISH].read_bytes() == b"kept:.\n" * 5000
    assert (out / GERMAN).read_bytes() == TEXTS[GERMAN]
    (out / GERMAN).write_bytes(b"cut")
    extract(archive, [ENGLISH, GERMAN], out)
    assert (out / GERMAN).read_bytes() == TEXTS[GERMAN]
    make(f"corpus{suffix}", {**TEXTS, ENGLISH: b"A new release.\n"})
    extract(archive, [ENGLISH], out)
    assert (out / ENGLISH).read_bytes() == b"A new release.\n"


def test_packed_archive_is_read_once(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backwards and forwards in a gzip file would be minutes in a large one."""
    read = []

    class Counted(gzip.GzipFile):
        def read(self, size: int | None = -1) -> bytes:
            block = super().read(size)
            read.append(len(block))
            return block

        def seek(self, *args: Any) -> int:
            raise AssertionError("seeks")

    archive = make()
    monkeypatch.setitem(archives._OPENERS, b"\x1f\x8b", lambda file: Counted(fileobj=file))
    extract(archive, [FRENCH, GERMAN, ENGLISH], tmp_path / "out")
    assert sum(read) == len(gzip.decompress(archive.read_bytes()))


def test_two_at_once(make: Any, tmp_path: Path) -> None:
    archive, out = make(), tmp_path / "out"
    threads = [threading.Thread(target=extract, args=(archive, [ENGLISH, GERMAN], out)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files(out) == [GERMAN, ENGLISH]
    assert (out / ENGLISH).read_bytes() == TEXTS[ENGLISH]


@pytest.mark.parametrize("suffix", [".tgz", ".tar", ".zip"])
def test_missing_member_names_the_nearest(make: Any, tmp_path: Path, suffix: str) -> None:
    message = rf"corpus\{suffix} has no member 'training/europarl-v7\.en-de\.en': did you mean '{ENGLISH}'\?"
    with pytest.raises(ValueError, match=message):
        extract(make(f"corpus{suffix}"), [GERMAN, "training/europarl-v7.en-de.en"], tmp_path / "out")
    assert files(tmp_path / "out") == []


@pytest.mark.parametrize("member", ["/etc/passwd", "../evil", "a/../../evil", "a//b", "./a", "a/", "", ".", "a\0b"])
def test_paths_that_leave_the_folder_are_refused(make: Any, tmp_path: Path, member: str) -> None:
    texts = {member: b"evil"} if "\0" not in member else TEXTS
    with pytest.raises(ValueError, match="archive member .*: expected a path such as folder/file"):
        extract(make(texts=texts), [member], tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("suffix", [".tgz", ".zip"])
def test_unasked_members_go_nowhere(make: Any, tmp_path: Path, suffix: str) -> None:
    archive = make(f"evil{suffix}", {"../evil": b"evil", f"{tmp_path}/evil": b"evil", ENGLISH: b"good"})
    extract(archive, [ENGLISH], tmp_path / "out")
    assert files(tmp_path) == [f"evil{suffix}", f"out/.evil{suffix}.json", f"out/{ENGLISH}"]


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        (tar_member("a", kind=tarfile.SYMTYPE, link="/etc/passwd"), "symbolic link"),
        (tar_member("a", kind=tarfile.LNKTYPE, link="good"), "hard link"),
        (tar_member("a", kind=tarfile.CHRTYPE), "device or special file"),
        (tar_member("a", kind=tarfile.BLKTYPE), "device or special file"),
        (tar_member("a", kind=tarfile.FIFOTYPE), "device or special file"),
        (tar_member("a", kind=tarfile.DIRTYPE), "folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_file_is_refused(tmp_path: Path, info: tarfile.TarInfo, kind: str) -> None:
    archive = write_tar(tmp_path / "evil.tgz", (tar_member("good", b"good"), b"good"), (info, b""))
    with pytest.raises(ValueError, match=rf"evil\.tgz: member 'a' is a {kind}: expected an ordinary file"):
        extract(archive, ["good", "a"], tmp_path / "out")
    assert files(tmp_path / "out") == []


@pytest.mark.parametrize(("mode", "kind"), [(stat.S_IFLNK, "symbolic link"), (stat.S_IFCHR, "device or special file")])
def test_links_in_zip_archives_are_refused(tmp_path: Path, mode: int, kind: str) -> None:
    info = zipfile.ZipInfo("a")
    info.external_attr = (mode | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(ValueError, match=rf"evil\.zip: member 'a' is a {kind}"):
        extract(tmp_path / "evil.zip", ["a"], tmp_path / "out")


def test_link_to_a_folder_before_a_file_within_it(tmp_path: Path) -> None:
    """The archive's link is not made, so the file lands in a folder of its own."""
    link = tar_member("training", kind=tarfile.SYMTYPE, link=str(tmp_path))
    archive = write_tar(tmp_path / "evil.tgz", (link, b""), (tar_member("training/a", b"text"), b"text"))
    extract(archive, ["training/a"], tmp_path / "out")
    assert files(tmp_path / "out") == ["training/a"] and not (tmp_path / "a").exists()


def test_linked_folder_is_not_followed(make: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/training").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"out/training is a link: nothing is extracted through it"):
        extract(make(), [ENGLISH], tmp_path / "out")
    assert files(tmp_path / "elsewhere") == []


def test_linked_file_is_replaced(make: Any, tmp_path: Path) -> None:
    """Even where it could pass for the file that was extracted before."""
    archive, out = make(), tmp_path / "out"
    extract(archive, [ENGLISH], out)
    mine = b"x" * len(TEXTS[ENGLISH])
    (tmp_path / "elsewhere").write_bytes(mine)
    (out / ENGLISH).unlink()
    (out / ENGLISH).symlink_to(tmp_path / "elsewhere")
    extract(archive, [ENGLISH], out)
    assert (tmp_path / "elsewhere").read_bytes() == mine
    assert (out / ENGLISH).read_bytes() == TEXTS[ENGLISH] and not (out / ENGLISH).is_symlink()


@pytest.mark.parametrize("kind", ["wanted", "unwanted", "zip"])
def test_archive_bomb(tmp_path: Path, kind: str) -> None:
    zeros = b"\0" * (80 << 20)
    if kind == "zip":
        bomb = tmp_path / "bomb.zip"
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a", zeros)
    else:
        members = [("b", zeros), ("a", b"text")] if kind == "unwanted" else [("a", zeros)]
        bomb = write_tar(tmp_path / "bomb.tgz", *((tar_member(name, content), content) for name, content in members))
    with pytest.raises(ValueError, match=r"bomb\.\w+: [\d,]+ bytes unpack to [\d,]+ and more, over 200 times") as error:
        extract(bomb, ["a"], tmp_path / "out")
    assert "\n" not in str(error.value)
    assert files(tmp_path / "out") == []


def test_full_disk(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=20_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    message = rf"no space left for .*/{GERMAN} \(50,000 bytes needed, 20,000 free\): free some"
    with pytest.raises(OSError, match=message):
        extract(make(), [GERMAN], tmp_path / "out")
    assert files(tmp_path / "out") == []


DAMAGED = r"is damaged, cut short or not an archive \(.*\): expected tar, .*: remove it and fetch it again$"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_cut_archive(make: Any, tmp_path: Path, suffix: str) -> None:
    archive = make(f"corpus{suffix}", {GERMAN: os.urandom(300_000), ENGLISH: TEXTS[ENGLISH]})
    os.truncate(archive, archive.stat().st_size // 2)
    with pytest.raises(ValueError, match=rf"corpus\{suffix} {DAMAGED}"):
        extract(archive, [GERMAN], tmp_path / "out")
    assert files(tmp_path / "out") == []


@pytest.mark.parametrize("suffix", [".tgz", ".tar.bz2", ".tar.xz", ".zip"])
def test_damaged_archive(make: Any, tmp_path: Path, suffix: str) -> None:
    """One bit in the middle, which only the checksum shows; also where the damage is in another member of a tar."""
    archive = make(f"corpus{suffix}", {GERMAN: os.urandom(300_000), ENGLISH: b"A dog.\n"})
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=rf"corpus\{suffix} {DAMAGED}"):
        extract(archive, [GERMAN if suffix == ".zip" else ENGLISH], tmp_path / "out")
    assert files(tmp_path / "out") == []


def test_checksum_right_behind_a_block(make: Any, tmp_path: Path) -> None:
    """The tar ends where a block that is read at once does, so that only reading on finds the wrong checksum."""
    header, end = 512, 1024
    archive = make(texts={ENGLISH: b"\n" * (5 * archives.BLOCK - header - end)})
    content = bytearray(archive.read_bytes())
    content[-5] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=rf"corpus\.tgz {DAMAGED}"):
        extract(archive, [ENGLISH], tmp_path / "out")
    assert files(tmp_path / "out") == []


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", b"<html>" * 1000, b"PK\x03\x04" + b"x" * 1000]
    + [pack(b"no tar" * 1000) for pack in (gzip.compress, bz2.compress, lzma.compress)],
    ids=["empty", "text", "html", "damaged zip", "gzip", "bzip2", "xz"],
)
def test_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tgz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.tgz ({DAMAGED}|has no member 'a': it is empty$)"):
        extract(tmp_path / "a.tgz", ["a"], tmp_path / "out")


KILLED_IN_THE_SECOND = """
import os, shutil, signal, sys
from pathlib import Path
from rskip.corpora.archives import extract

def copy(source, target, size, copy=shutil.copyfileobj):
    if target.name.endswith(".b.partial"):
        target.write(source.read(3))
        target.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    copy(source, target, size)

shutil.copyfileobj = copy
extract(Path(sys.argv[1]), ["a", "b"], Path(sys.argv[2]))
"""


def test_killed_in_the_middle(make: Any, tmp_path: Path, root: Path) -> None:
    """No member is there; the next call extracts them and leaves nothing else."""
    contents = {"a": b"first\n", "b": b"second\n"}
    archive, out = make(texts=contents), tmp_path / "out"
    process = subprocess.run([sys.executable, "-c", KILLED_IN_THE_SECOND, str(archive), str(out)], cwd=root)
    assert process.returncode == -signal.SIGKILL
    assert (out / ".a.partial").read_bytes() == b"first\n" and (out / ".b.partial").read_bytes() == b"sec"
    assert not {"a", "b"} & set(files(out))
    extracted = extract(archive, ["a", "b"], out)
    assert {name: path.read_bytes() for name, path in extracted.items()} == contents
    assert files(out) == ["a", "b"]
