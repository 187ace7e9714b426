"""Upstream files: from a mirror, from the web, from the cache."""

from __future__ import annotations

import gzip
import hashlib
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.corpora.corpus import UpstreamFile
from rskip.corpora.fetch import fetch
from rskip.files.checksum import sha256_file
from rskip.settings.errors import SettingError

NAMES = ["train.en.gz", "train.de.gz", "val.en.gz", "val.de.gz", "test.en.gz", "test.de.gz"]
Upstream = Callable[..., list[UpstreamFile]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def upstream(mirror: Path) -> Upstream:
    """The files of `mirror`; their sums are those of this moment, or unknown."""

    def upstream(*, url: str = "https://upstream.example/raw", known: bool = True) -> list[UpstreamFile]:
        facts = [(mirror / name).stat().st_size if known else None for name in NAMES]
        sums = [sha256_file(mirror / name) if known else None for name in NAMES]
        return [
            UpstreamFile(name=name, url=f"{url}/{name}", size=size, sha256=sum_)
            for name, size, sum_ in zip(NAMES, facts, sums, strict=True)
        ]

    return upstream


@pytest.mark.parametrize(("offline", "known"), [(False, True), (True, False)])
def test_mirror_folder_is_read_in_place(
    upstream: Upstream, mirror: Path, cache: Path, offline: bool, known: bool
) -> None:
    fetched = fetch(upstream(known=known), folder="tiny", mirror=str(mirror), offline=offline)
    facts = [(mirror / name, (mirror / name).stat().st_size, sha256_file(mirror / name)) for name in NAMES]
    assert [(file.path, file.size, file.sha256) for file in fetched.values()] == facts
    assert not cache.exists()


@pytest.mark.parametrize("known", [False, True])
def test_web_files_are_cached_and_a_damaged_one_is_fetched_again(
    upstream: Upstream, server: Any, mirror: Path, cache: Path, known: bool
) -> None:
    files = upstream(url=server.url, known=known)
    fetched = fetch(files, folder="tiny")
    assert [file.path for file in fetched.values()] == [cache / "tiny" / name for name in NAMES]
    assert sorted(server.requests) == sorted(NAMES)
    sums = [] if known else [f"{name}.sha256" for name in NAMES]
    assert sorted(path.name for path in (cache / "tiny").iterdir()) == sorted([*NAMES, *sums])
    assert fetch(files, folder="tiny") == fetched
    damaged = cache / "tiny/train.de.gz"
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    fetch(files, folder="tiny")
    assert server.requests[len(NAMES) :] == ["train.de.gz"]
    assert damaged.read_bytes() == (mirror / "train.de.gz").read_bytes()


def test_bad_mirrors(upstream: Upstream, mirror: Path, tmp_path: Path) -> None:
    files = upstream()
    (mirror / "val.de.gz").write_bytes(bytes((mirror / "val.de.gz").stat().st_size))
    got = sha256_file(mirror / "val.de.gz")
    message = rf"val\.de\.gz has the sha256 {got}, expected {files[3].sha256}: replace it"
    with pytest.raises(ValueError, match=message):
        fetch(files, folder="tiny", mirror=str(mirror))
    for name in ("train.en.gz", "val.de.gz"):
        (mirror / name).unlink()
    message = r"lacks train\.en\.gz, val\.de\.gz: get from https://upstream\.example/raw/train\.en\.gz, .*/val\.de\.gz$"
    with pytest.raises(FileNotFoundError, match=message):
        fetch(files, folder="tiny", mirror=str(mirror))
    with pytest.raises(FileNotFoundError, match=r"no mirror folder .*nowhere: expected one that holds train"):
        fetch(files, folder="tiny", mirror=str(tmp_path / "nowhere"))
    with pytest.raises(SettingError, match=r"^mirror is 's3://bucket': expected a folder, or a URL"):
        fetch(files, folder="tiny", mirror="s3://bucket")


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_packed_file_stands_in_for_the_file(tmp_path: Path, cache: Path, suffix: str) -> None:
    pack = gzip.compress if suffix == ".gz" else lzma.compress
    mirror = tmp_path / "packed"
    mirror.mkdir()
    content = b"a sentence\n" * 1000
    packed = mirror / f"train.en{suffix}"
    packed.write_bytes(pack(content))
    unknown = UpstreamFile(name="train.en", url="https://x/train.en")
    sum_ = hashlib.sha256(content).hexdigest()
    file = UpstreamFile(name="train.en", url="https://x/train.en", size=len(content), sha256=sum_)
    fetched = fetch([file], folder="tiny", mirror=str(mirror))[file]
    assert fetched.path.read_bytes() == content and (fetched.size, fetched.sha256) == (file.size, file.sha256)
    assert cache in fetched.path.parents
    modified = fetched.path.stat().st_mtime_ns
    assert fetch([file], folder="tiny", mirror=str(mirror))[file] == fetched
    assert fetched.path.stat().st_mtime_ns == modified

    packed.write_bytes(pack(b"another text\n"))
    assert fetch([unknown], folder="tiny", mirror=str(mirror))[unknown].path.read_bytes() == b"another text\n"
    with pytest.raises(ValueError, match=rf"packed/train\.en{suffix}, unpacked, has .+, expected .+: replace it"):
        fetch([file], folder="tiny", mirror=str(mirror))
    packed.write_bytes(pack(content)[:-20])
    with pytest.raises(ValueError, match=rf"packed/train\.en{suffix} is damaged or truncated \("):
        fetch([file], folder="tiny", mirror=str(mirror))


def test_offline_reads_the_cache(upstream: Upstream, server: Any, cache: Path) -> None:
    files = upstream(url=server.url)
    online = fetch(files, folder="tiny")
    server.requests.clear()
    assert fetch(files, folder="tiny", offline=True) == online
    (cache / "tiny/val.de.gz").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"^offline: .*/tiny/val\.de\.gz has 7 bytes, expected \d+: run once online"):
        fetch(files, folder="tiny", offline=True)
    (cache / "tiny/train.en.gz").unlink()
    with pytest.raises(FileNotFoundError, match=rf"^offline: train\.en\.gz not in the cache {cache}/tiny: run once"):
        fetch(files, folder="tiny", offline=True, mirror=server.url)
    assert server.requests == []
