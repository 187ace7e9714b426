"""Where a model's files are searched for, and the errors for wrong files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

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


@pytest.mark.parametrize("damage", ["flipped", "cut short", "removed"])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_folder_with_a_damaged_file_is_passed_over(
    entry: ModelEntry, checkout: Path, published: Path, mirror: Path, file: str, damage: str
) -> None:
    path = published / file
    if damage == "flipped":
        flip_a_byte(path)
    elif damage == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    assert model_folder(entry, root=checkout) == mirror
    (mirror / file).unlink()
    with pytest.raises(FileNotFoundError, match=f"in none of the folders {published}, .*{mirror}.* set RSKIP_HUB_MIRR"):
        model_folder(entry, root=checkout)


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
