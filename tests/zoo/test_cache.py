"""Where a model's files are searched for, and the errors for wrong files."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from rskip.files.checksum import file_difference
from rskip.zoo.files import cached_folder, model_folder
from rskip.zoo.registry import ModelEntry, ModelFile

NAME = "preact_resnet8_2rskip_ln.cifar10"


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def entry(published: Path, make_entry: Callable[..., ModelEntry]) -> ModelEntry:
    return make_entry(published)


@pytest.fixture
def checkout(published: Path) -> Path:
    return published.parents[1]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A root without checkpoints/, as an installed package has it."""
    return tmp_path / "installed"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise AssertionError(f"fetches {args}")

    monkeypatch.setattr("rskip.zoo.files.fetch_model", refused)


@pytest.fixture
def mirror(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model's folder in a mirror."""
    folder = tmp_path / "mirror" / NAME
    shutil.copytree(published, folder)
    monkeypatch.setenv("RSKIP_HUB_MIRROR", str(folder.parent))
    return folder


def test_checkout_comes_first_and_is_read_in_place(
    entry: ModelEntry, checkout: Path, published: Path, mirror: Path, hub: Path
) -> None:
    shutil.copytree(published, cached_folder(entry))
    assert model_folder(entry, root=checkout) == published
    shutil.rmtree(hub)
    assert model_folder(entry, root=checkout) == published
    assert not hub.exists()


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_damaged_file_of_the_checkout_is_named_and_left(
    entry: ModelEntry, checkout: Path, published: Path, mirror: Path, file: str
) -> None:
    flip_a_byte(published / file)
    damaged = (published / file).read_bytes()
    path, sha256 = re.escape(str(published / file)), entry.files[file].sha256
    message = rf"^{path} is damaged, or from another version: it has the sha256 [0-9a-f]{{64}}, expected {sha256}:"
    with pytest.raises(ValueError, match=rf"{message} get it again \(torch\.hub\.load with force_reload=True\)$"):
        model_folder(entry, root=checkout)
    (checkout / ".git").mkdir()
    with pytest.raises(ValueError, match=rf"{message} get it again \(git checkout -- FILE\)$"):
        model_folder(entry, root=checkout)
    assert (published / file).read_bytes() == damaged


def test_an_installed_package_reads_intact_files_of_the_clone_in_which_it_works(
    entry: ModelEntry, checkout: Path, published: Path, installed: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    assert model_folder(entry, root=installed) == mirror  # without checkpoints.json the working folder isn't a clone
    (checkout / "checkpoints.json").write_text("{}")
    assert model_folder(entry, root=installed) == published
    flip_a_byte(published / "config.json")  # of another version
    assert model_folder(entry, root=installed) == mirror
    monkeypatch.delenv("RSKIP_HUB_MIRROR")
    with pytest.raises(FileNotFoundError, match=rf"in none of the folders {installed}\S+, {published}, \S+, and"):
        model_folder(entry, root=installed)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_cache_that_cannot_be_read_leaves_the_mirror(
    entry: ModelEntry, installed: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    cached = cached_folder(entry)
    shutil.copytree(mirror, cached)
    assert model_folder(entry, root=installed) == cached

    def unreadable(path: Path, **expected: Any) -> str | None:
        if path.is_relative_to(cached):
            raise OSError(number, os.strerror(number), str(path))
        return file_difference(path, **expected)

    monkeypatch.setattr("rskip.zoo.files.file_difference", unreadable)
    assert model_folder(entry, root=installed) == mirror


def test_a_checkout_that_cannot_be_looked_into_leaves_the_mirror(
    entry: ModelEntry, checkout: Path, mirror: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_file = Path.is_file

    def unreadable(path: Path) -> bool:
        if path.is_relative_to(published):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", unreadable)
    assert model_folder(entry, root=checkout) == mirror


def test_a_file_of_the_mirror_that_cannot_be_read_is_named(
    entry: ModelEntry, installed: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(path: Path, **expected: Any) -> str | None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("rskip.zoo.files.file_difference", unreadable)
    with pytest.raises(OSError) as error:
        model_folder(entry, root=installed)
    assert str(error.value) == (
        f"{mirror / next(iter(entry.files))} can't be read (Permission denied): replace it, or unset RSKIP_HUB_MIRROR"
    )


def test_a_mirror_of_an_impossible_name_is_nowhere(
    entry: ModelEntry, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSKIP_HUB_MIRROR", "x" * 5000)
    with pytest.raises(FileNotFoundError, match=rf"^{NAME}: its files, .* are in none of the folders "):
        model_folder(entry, root=installed)


def test_file_cut_short(entry: ModelEntry, checkout: Path, published: Path) -> None:
    content = (published / "model.safetensors").read_bytes()
    (published / "model.safetensors").write_bytes(content[:-1])
    message = rf"it has {len(content) - 1:,} bytes, expected {len(content):,}: "
    with pytest.raises(ValueError, match=message):
        model_folder(entry, root=checkout)


def test_cache_before_the_mirror_and_the_mirror_for_what_others_lack(
    entry: ModelEntry, checkout: Path, published: Path, installed: Path, mirror: Path
) -> None:
    assert model_folder(entry, root=installed) == mirror
    (published / "config.json").unlink()
    assert model_folder(entry, root=checkout) == mirror
    assert model_folder(msgspec.structs.replace(entry, folder=None), root=checkout) == mirror
    cached = cached_folder(entry)
    assert not cached.exists()
    shutil.copytree(mirror, cached)
    assert model_folder(entry, root=installed) == cached
    flip_a_byte(cached / "model.safetensors")
    assert model_folder(entry, root=installed) == mirror


def test_a_clone_is_a_mirror(entry: ModelEntry, installed: Path, mirror: Path) -> None:
    folder = mirror.parent / str(entry.folder)
    folder.parent.mkdir(parents=True)
    mirror.rename(folder)
    assert model_folder(entry, root=installed) == folder


def test_damaged_file_of_the_mirror_is_named(entry: ModelEntry, installed: Path, mirror: Path) -> None:
    flip_a_byte(mirror / "model.safetensors")
    message = rf"^{re.escape(str(mirror))}/model\.safetensors is damaged, .*: replace it, or unset RSKIP_HUB_MIRROR$"
    with pytest.raises(ValueError, match=message):
        model_folder(entry, root=installed)


def test_nowhere(
    entry: ModelEntry, installed: Path, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cached = cached_folder(entry)
    folders = f"{installed}/checkpoints/classifier, {cached}"
    wanted = f"to a folder or URL that has {NAME}/model.safetensors and the files next to it"
    with pytest.raises(FileNotFoundError) as error:
        model_folder(entry, root=installed)
    assert str(error.value) == (
        f"{NAME}: its files, intact and of this version, are in none of the folders {folders}, and no address is known "
        f"from which to download them: work in the root of a clone, or set RSKIP_HUB_MIRROR to a clone or {wanted}"
    )
    monkeypatch.setenv("RSKIP_HUB_MIRROR", str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match=rf"{cached}, {tmp_path}/empty/{NAME}, {tmp_path}/empty/check.*, and"):
        model_folder(entry, root=installed)
    assert not hub.exists()


def test_offline_fetches_nothing(
    entry: ModelEntry, installed: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = msgspec.structs.replace(entry, url="https://models.example")
    monkeypatch.setenv("RSKIP_OFFLINE", "1")
    assert model_folder(served, root=installed) == mirror
    monkeypatch.setenv("RSKIP_HUB_MIRROR", "https://mirror.example")
    message = rf"^{NAME}: its files, .* of the folders .*, and RSKIP_OFFLINE forbids downloads: unset it, or set"
    with pytest.raises(FileNotFoundError, match=message):
        model_folder(served, root=installed)
    cached = cached_folder(entry)
    shutil.copytree(mirror, cached)
    assert model_folder(served, root=installed) == cached
    flip_a_byte(cached / "model.safetensors")
    with pytest.raises(FileNotFoundError, match=message):
        model_folder(served, root=installed)
    monkeypatch.setenv("RSKIP_OFFLINE", "0")
    with pytest.raises(AssertionError, match="fetches"):
        model_folder(served, root=installed)


def test_address_that_is_none(entry: ModelEntry, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSKIP_HUB_MIRROR", "s3://bucket")
    with pytest.raises(ValueError, match=r"^RSKIP_HUB_MIRROR=s3://bucket: expected a folder, or a URL that begins with http://"):
        model_folder(entry, root=installed)


def test_mirror_in_the_home_folder(
    entry: ModelEntry, installed: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(mirror.parents[1]))
    monkeypatch.setenv("RSKIP_HUB_MIRROR", "~/mirror")
    assert model_folder(entry, root=installed) == mirror


def test_each_version_of_a_model_has_its_folder_in_the_cache(
    entry: ModelEntry, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cached_folder(entry)
    assert folder.parent == hub / "rskip" and folder.name.startswith(f"{NAME}-")
    reordered = {path: entry.files[path] for path in reversed(entry.files)}
    assert cached_folder(msgspec.structs.replace(entry, files=reordered, licence="other")) == folder
    for path in entry.files:
        other = {**entry.files, path: ModelFile(size=entry.files[path].size, sha256="0" * 64)}
        assert cached_folder(msgspec.structs.replace(entry, files=other)) != folder
    monkeypatch.setattr(torch.hub, "_hub_dir", None)  # put back afterwards
    torch.hub.set_dir(tmp_path / "elsewhere")
    assert cached_folder(entry) == tmp_path / "elsewhere/rskip" / folder.name
