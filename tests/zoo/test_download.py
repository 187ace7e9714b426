"""Models from an address into the cache: interrupted, damaged, refused, by several processes at once."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rskip.extras import MissingExtra
from rskip.zoo.files import cached_folder, model_folder
from rskip.zoo.registry import ModelEntry, write_registry

NAME = "preact_resnet8_2rskip_ln.cifar10"
WEIGHTS = f"{NAME}/model.safetensors"
CONFIG = f"{NAME}/config.json"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.files.download.FIRST_WAIT", 0.0)


@pytest.fixture
def entry(
    server: Any, published: Path, make_entry: Callable[..., ModelEntry], monkeypatch: pytest.MonkeyPatch
) -> ModelEntry:
    """A model that only the mirror, `server`, has."""
    monkeypatch.setenv("RSKIP_HUB_MIRROR", f"{server.url}/")
    return make_entry(published, folder=None)


def get(entry: ModelEntry) -> Path:
    folder = model_folder(entry, root=Path("/nowhere"))
    assert folder == cached_folder(entry)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_fetched_once(entry: ModelEntry, server: Any, published: Path, hub: Path) -> None:
    folder = get(entry)
    assert names(hub / "rskip") == sorted([folder.name, "config.json", "model.safetensors"])
    for path in published.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    assert sorted(server.requests) == [CONFIG, WEIGHTS]
    get(entry)
    assert len(server.requests) == 2


@pytest.mark.parametrize("damage", ["flipped byte", "cut short", "removed"])
def test_damaged_cache_heals_itself(entry: ModelEntry, server: Any, published: Path, damage: str) -> None:
    weights = get(entry) / "model.safetensors"
    content = bytearray(weights.read_bytes())
    status = weights.stat()
    if damage == "removed":
        weights.unlink()
    else:
        content[-1] ^= 1
        weights.write_bytes(content if damage == "flipped byte" else content[:-1])
        os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a failing disk does it
    server.requests.clear()
    get(entry)
    assert server.requests == [WEIGHTS]
    assert weights.read_bytes() == (published / "model.safetensors").read_bytes()


def test_what_is_not_the_file_never_gets_its_name(entry: ModelEntry, server: Any) -> None:
    """And the advice is for users of models."""
    weights = server.folder / WEIGHTS
    whole = weights.read_bytes()
    weights.write_bytes(b"\x80\x04" + whole[2:])
    with pytest.raises(ValueError) as error:
        get(entry)
    assert re.fullmatch(
        rf"{server.url}/{WEIGHTS}: the file has the sha256 \w+, expected \w+; it was removed: try again, or set "
        "RSKIP_HUB_MIRROR to another folder or URL that has it",
        str(error.value),
    )
    assert names(cached_folder(entry)) == ["config.json"]
    weights.write_bytes(whole)
    assert (get(entry) / "model.safetensors").read_bytes() == whole


def test_no_network_leaves_the_cache(entry: ModelEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = get(entry)
    monkeypatch.setenv("RSKIP_HUB_MIRROR", "http://127.0.0.1:9")
    assert get(entry) == folder
    (folder / "model.safetensors").write_bytes(b"damaged")
    message = r"^http://127\.0\.0\.1:9/.*: download failed in 3 attempts \(.*refused.*\): run it again"
    with pytest.raises(OSError, match=message):
        get(entry)
    assert (folder / "model.safetensors").read_bytes() == b"damaged"


def test_without_pooch_one_line_names_the_extra(entry: ModelEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users of torch.hub, who have hubconf.py's dependencies only."""
    monkeypatch.delitem(sys.modules, "rskip.files.download", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtra, match=r"^a download needs pooch\b.*: install one of the extras .*vision"):
        get(msgspec.structs.replace(entry, url="http://127.0.0.1:9"))


def test_models_own_address_where_the_mirror_lacks_it(
    entry: ModelEntry, server: Any, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server.folder / NAME).rename(server.folder / "own")
    folder = get(msgspec.structs.replace(entry, url=f"{server.url}/own/"))
    assert (folder / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()
    assert server.requests == [CONFIG, "own/config.json", "own/model.safetensors"]

    shutil.rmtree(folder)
    (server.folder / "own").rename(server.folder / "gone")
    with pytest.raises(FileNotFoundError) as error:
        get(msgspec.structs.replace(entry, url=f"{server.url}/own/"))
    for address in (f"{server.url}/{CONFIG}", f"{server.url}/own/config.json"):
        assert f"{address}: the server answered 404 Not Found" in str(error.value)


def test_a_release_serves_the_folders_of_the_repository(
    entry: ModelEntry, server: Any, published: Path, tmp_path: Path
) -> None:
    """At one address for all models, where the mirror lacks this one. The registry of an installed package has it."""
    entry = msgspec.structs.replace(entry, folder="checkpoints/field/preact_2rskip")
    shutil.copytree(server.folder / NAME, server.folder / "v1" / str(entry.folder))
    shutil.rmtree(server.folder / NAME)
    installed = tmp_path / "installed"
    installed.mkdir()
    write_registry(installed / "checkpoints.json", {entry.name: entry}, url=f"{server.url}/v1/")
    folder = model_folder(entry, root=installed)
    assert folder == cached_folder(entry)
    assert (folder / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()
    assert server.requests == [CONFIG, *(f"v1/{entry.folder}/{name}" for name in ("config.json", "model.safetensors"))]
