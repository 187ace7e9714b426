"""Where a model's files are searched for, how they are downloaded, and what is not taken for them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from rskip.extras import MissingExtra
from rskip.zoo.files import cached_folder, model_folder
from rskip.zoo.registry import ModelEntry, ModelFile, write_registry

NAME = "preact_resnet8_2rskip_ln.cifar10"
WEIGHTS, CONFIG = f"{NAME}/model.safetensors", f"{NAME}/config.json"
replace = msgspec.structs.replace


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.files.download.FIRST_WAIT", 0.0)


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


@pytest.fixture
def mirror(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model's folder in a mirror."""
    folder = tmp_path / "mirror" / NAME
    shutil.copytree(published, folder)
    monkeypatch.setenv("RSKIP_HUB_MIRROR", str(folder.parent))
    return folder


@pytest.fixture
def served(server: Any, entry: ModelEntry, monkeypatch: pytest.MonkeyPatch) -> ModelEntry:
    """A model that only the mirror, `server`, has."""
    monkeypatch.setenv("RSKIP_HUB_MIRROR", f"{server.url}/")
    return replace(entry, folder=None)


def get(entry: ModelEntry) -> Path:
    folder = model_folder(entry, root=Path("/nowhere"))
    assert folder == cached_folder(entry)
    return folder


def test_the_checkout_then_the_cache_then_the_mirror(
    entry: ModelEntry, checkout: Path, published: Path, installed: Path, mirror: Path, hub: Path
) -> None:
    assert model_folder(entry, root=checkout) == published and not hub.exists()
    assert model_folder(entry, root=installed) == mirror
    assert model_folder(replace(entry, folder=None), root=checkout) == mirror
    cached = cached_folder(entry)
    shutil.copytree(mirror, cached)
    assert model_folder(entry, root=checkout) == published
    assert model_folder(entry, root=installed) == cached
    damage(cached / "model.safetensors")
    assert model_folder(entry, root=installed) == mirror
    clone = mirror.parent / str(entry.folder)
    clone.parent.mkdir(parents=True)
    mirror.rename(clone)
    assert model_folder(entry, root=installed) == clone, "a clone is a mirror"


@pytest.mark.parametrize("spoil", [damage, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_folder_with_a_damaged_file_is_passed_over(
    entry: ModelEntry, checkout: Path, published: Path, mirror: Path, file: str, spoil: Callable[[Path], object]
) -> None:
    spoil(published / file)
    assert model_folder(entry, root=checkout) == mirror
    (mirror / file).unlink()
    with pytest.raises(FileNotFoundError, match=f"in none of the folders {published}, .*{mirror}.* set RSKIP_HUB_MIRR"):
        model_folder(entry, root=checkout)


def test_an_installed_package_reads_the_files_of_the_clone_in_which_it_works(
    entry: ModelEntry, checkout: Path, published: Path, installed: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    assert model_folder(entry, root=installed) == mirror  # without checkpoints.json the working folder isn't a clone
    (checkout / "checkpoints.json").write_text("{}")
    assert model_folder(entry, root=installed) == published
    damage(published / "config.json")
    assert model_folder(entry, root=installed) == mirror


def test_offline_fetches_nothing(
    served: ModelEntry, server: Any, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSKIP_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match=rf"^{NAME}: .* RSKIP_OFFLINE forbids downloads \(unset it\): set"):
        model_folder(served, root=installed)
    assert not server.requests
    monkeypatch.setenv("RSKIP_OFFLINE", "0")
    model_folder(served, root=installed)
    monkeypatch.setenv("RSKIP_OFFLINE", "1")
    assert model_folder(served, root=installed) == cached_folder(served)


def test_each_version_of_a_model_has_its_folder_in_the_cache(
    entry: ModelEntry, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cached_folder(entry)
    assert folder.parent == hub / "rskip" and folder.name.startswith(f"{NAME}-")
    reordered = {path: entry.files[path] for path in reversed(entry.files)}
    assert cached_folder(replace(entry, files=reordered, licence="other")) == folder
    for path in entry.files:
        other = {**entry.files, path: ModelFile(size=entry.files[path].size, sha256="0" * 64)}
        assert cached_folder(replace(entry, files=other)) != folder
    monkeypatch.setattr(torch.hub, "_hub_dir", None)  # put back afterwards
    torch.hub.set_dir(tmp_path / "elsewhere")
    assert cached_folder(entry) == tmp_path / "elsewhere/rskip" / folder.name


def test_files_are_fetched_once_and_a_damaged_cache_heals_itself(
    served: ModelEntry, server: Any, published: Path
) -> None:
    folder = get(served)
    for path in published.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    get(served)
    assert sorted(server.requests) == [CONFIG, WEIGHTS]
    damage(folder / "model.safetensors")
    server.requests.clear()
    get(served)
    assert server.requests == [WEIGHTS]
    assert (folder / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()


def test_what_is_not_the_file_never_gets_its_name(
    served: ModelEntry, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(server.folder / WEIGHTS)
    with pytest.raises(ValueError, match=rf"^{server.url}/{WEIGHTS}: .*sha256.* or set RSKIP_HUB_MIRROR to another"):
        get(served)
    assert [path.name for path in cached_folder(served).iterdir()] == ["config.json"]
    monkeypatch.setenv("RSKIP_HUB_MIRROR", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"^http://127\.0\.0\.1:9/.*: download failed in 3 attempts \(.*refused"):
        get(served)


def test_without_pooch_one_line_names_the_extra(entry: ModelEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users of torch.hub, who have hubconf.py's dependencies only."""
    monkeypatch.delitem(sys.modules, "rskip.files.download", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtra, match=r"^a download needs pooch\b.*: install one of the extras .*vision"):
        get(replace(entry, folder=None, url="http://127.0.0.1:9"))


def test_a_models_own_address_and_that_of_the_release_where_the_mirror_lacks_it(
    served: ModelEntry, server: Any, tmp_path: Path
) -> None:
    folder = "checkpoints/field/preact_2rskip"
    shutil.copytree(server.folder / NAME, server.folder / "v1" / folder)
    (server.folder / NAME).rename(server.folder / "own")
    shutil.rmtree(get(replace(served, url=f"{server.url}/own/")))
    assert server.requests == [CONFIG, "own/config.json", "own/model.safetensors"]

    server.requests.clear()
    entry, installed = replace(served, folder=folder), tmp_path / "installed"
    installed.mkdir()
    write_registry(installed / "checkpoints.json", {entry.name: entry}, url=f"{server.url}/v1/")
    assert model_folder(entry, root=installed) == cached_folder(entry)
    assert server.requests == [CONFIG, *(f"v1/{folder}/{name}" for name in ("config.json", "model.safetensors"))]

    with pytest.raises(FileNotFoundError) as error:
        model_folder(replace(entry, files={**entry.files, "a.json": ModelFile(size=1, sha256="0" * 64)}), root=tmp_path)
    assert f"{server.url}/{CONFIG}: the server answered 404 Not Found" in str(error.value)
