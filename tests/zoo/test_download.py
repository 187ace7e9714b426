"""Models from an address into the cache: interrupted, damaged, refused, by several processes at once."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.zoo.cache import cached_folder
from rskip.zoo.entry import ModelEntry
from rskip.zoo.files import model_folder

NAME = "preact_resnet8_2rskip_ln.cifar10"
WEIGHTS = f"{NAME}/model.safetensors"
CONFIG = f"{NAME}/config.json"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.zoo.download.FIRST_WAIT", 0.0)


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
    assert sorted(path for path, _ in server.requests) == [CONFIG, WEIGHTS]
    get(entry)
    assert len(server.requests) == 2


def test_files_in_folders(
    entry: ModelEntry, server: Any, published: Path, make_entry: Callable[..., ModelEntry]
) -> None:
    (published / "text").mkdir()
    (published / "text/some codes.bpe").write_text("codes")
    server.files[f"{NAME}/text/some%20codes.bpe"] = b"codes"
    assert (get(make_entry(published, folder=None)) / "text/some codes.bpe").read_text() == "codes"


def test_interrupted_download_goes_on(entry: ModelEntry, server: Any, published: Path) -> None:
    server.faults = [None, ("cut", 1000), 503]
    folder = get(entry)
    assert (folder / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()
    expected = [(CONFIG, None), (WEIGHTS, None), (WEIGHTS, "bytes=1000-"), (WEIGHTS, "bytes=1000-")]
    assert server.requests == expected  # three attempts
    assert names(folder) == ["config.json", "model.safetensors"]


def test_later_call_goes_on_from_what_came_before(entry: ModelEntry, server: Any, published: Path) -> None:
    server.faults = [None, ("cut", 1000), 503, 503]
    with pytest.raises(OSError, match=r"model\.safetensors: download failed in 3 attempts .*or give RSKIP_HUB_MIRROR$"):
        get(entry)
    assert names(cached_folder(entry)) == ["config.json", "model.safetensors.partial", "model.safetensors.partial.json"]
    server.requests.clear()
    folder = get(entry)
    assert server.requests == [(WEIGHTS, "bytes=1000-")]
    assert (folder / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()
    assert names(folder) == ["config.json", "model.safetensors"]


def test_beginning_of_another_file_is_thrown_away(entry: ModelEntry, server: Any, published: Path) -> None:
    partial = cached_folder(entry) / "model.safetensors.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"another version")
    folder = get(entry)
    assert (folder / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()
    assert [wanted for path, wanted in server.requests if path == WEIGHTS] == ["bytes=15-", None]


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
    assert server.requests == [(WEIGHTS, None)]
    assert weights.read_bytes() == (published / "model.safetensors").read_bytes()


def web_page(server: Any) -> str:
    server.content_type = "text/html; charset=utf-8"
    return rf"{CONFIG}: the server answers with a web page in place of the file: open the address in a browser, or "


def web_page_called_something_else(server: Any) -> str:
    content = len(server.files[WEIGHTS])
    server.files[WEIGHTS] = b"<html>Please log in</html>"
    return rf"{WEIGHTS}: wrong size: expected {content:,} bytes, the server's file has 26: use another RSKIP_HUB_"


def truncated(server: Any) -> str:
    content = server.files[WEIGHTS]
    server.files[WEIGHTS] = content[:-1]
    return rf"{WEIGHTS}: wrong size: expected {len(content):,} bytes, the server's file has {len(content) - 1:,}: use "


def flipped_byte(server: Any) -> str:
    content = bytearray(server.files[WEIGHTS])
    content[-1] ^= 1
    server.files[WEIGHTS] = bytes(content)
    return rf"{WEIGHTS}: wrong checksum: expected sha256 .* the file was removed: try again, or use another RSKIP_HUB_"


def pickled(server: Any) -> str:
    server.files[WEIGHTS] = b"\x80\x04" + server.files[WEIGHTS][2:]
    return rf"{WEIGHTS}: wrong checksum: expected sha256 "


@pytest.mark.parametrize("spoil", [web_page, web_page_called_something_else, truncated, flipped_byte, pickled])
def test_what_is_not_the_file_never_gets_its_name(
    entry: ModelEntry, server: Any, spoil: Callable[[Any], str]
) -> None:
    whole = server.files[WEIGHTS]
    message = spoil(server)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        get(entry)
    assert "\n" not in str(error.value) and "--mirror" not in str(error.value)
    assert not (cached_folder(entry) / "model.safetensors").exists()
    server.files[WEIGHTS] = whole
    server.content_type = "application/octet-stream"
    assert (get(entry) / "model.safetensors").read_bytes() == whole


def test_no_network_leaves_the_cache(entry: ModelEntry, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = get(entry)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setenv("RSKIP_HUB_MIRROR", "http://127.0.0.1:9")
    assert get(entry) == folder
    (folder / "model.safetensors").write_bytes(b"damaged")
    message = r"^http://127\.0\.0\.1:9/.*: download failed in 3 attempts \(.*refused.*\): run it again"
    with pytest.raises(OSError, match=message):
        get(entry)
    assert (folder / "config.json").read_bytes() == whole["config.json"]
    assert (folder / "model.safetensors").read_bytes() == b"damaged"


@pytest.mark.parametrize("address", ["http://[::1", "http://127.0.0.1:9/mod\u00e8les", f"http://{'x' * 70}.example"])
def test_address_that_can_not_be_asked(
    entry: ModelEntry, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("RSKIP_HUB_MIRROR", address)
    message = rf"^{re.escape(address)}/{CONFIG}: no address to fetch from \([^\n]+\): use another RSKIP_HUB_MIRROR$"
    with pytest.raises(ValueError, match=message):
        get(entry)


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.partial", "model.safetensors.partial.json"])
def test_folder_where_a_file_belongs(entry: ModelEntry, server: Any, name: str) -> None:
    folder = cached_folder(entry)
    (folder / name).mkdir(parents=True)
    with pytest.raises(ValueError, match=rf"/{name} is a folder, and a downloaded file belongs there: remove it$"):
        get(entry)
    assert server.requests == [(CONFIG, None)]
    (folder / name).rmdir()
    get(entry)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_alone(
    entry: ModelEntry, server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(get(entry))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    get(entry)
    size = len(server.files[WEIGHTS])
    assert re.search(rf"model\.safetensors: 100%.*{size / 1000:.0f}k/{size / 1000:.0f}k", terminal.getvalue())


def test_models_own_address_where_the_mirror_lacks_it(
    entry: ModelEntry, server: Any, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {f"own/{path.name}": path.read_bytes() for path in published.iterdir()}
    folder = get(dataclasses.replace(entry, url=f"{server.url}/own/"))
    assert (folder / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()
    asked = [path for path, _ in server.requests]
    assert asked == [CONFIG, "own/config.json", "own/model.safetensors"]

    shutil.rmtree(folder)
    server.files = {}
    with pytest.raises(FileNotFoundError) as error:
        get(dataclasses.replace(entry, url=f"{server.url}/own/"))
    for address in (f"{server.url}/{CONFIG}", f"{server.url}/own/config.json"):
        assert f"{address}: the server says 404 Not Found" in str(error.value)


def test_cache_that_can_not_be_made(entry: ModelEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "file"))
    message = rf"^{re.escape(str(tmp_path))}/file.*: Not a directory: set TORCH_HOME to a folder that can be written"
    with pytest.raises(OSError, match=message):
        get(entry)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_cache_that_may_only_be_read(entry: ModelEntry, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    folder = get(entry)

    def refused(path: Any, *args: object, **kwargs: object) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("rskip.files.lock.os.open", refused)
    assert get(entry) == folder  # what it has is good
    (folder / "config.json").unlink()
    with pytest.raises(OSError, match=rf": {os.strerror(number)}: set TORCH_HOME to a folder that can be written, or "):
        get(entry)


def test_full_disk(entry: ModelEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"^no space left for .*20 free\): free some, or set TORCH_HOME to a folder on "):
        get(entry)


FETCH = """
import json, sys
from pathlib import Path
from rskip.zoo.download import fetch_model
from rskip.zoo.registry import read_entry
name, content, address, folder = json.loads(sys.argv[1])
fetch_model(read_entry(name, content), address, Path(folder))
"""


def test_processes_share_one_download(entry: ModelEntry, server: Any, root: Path, published: Path) -> None:
    """One receives half of the weights and waits a second; the other waits for the first."""
    server.faults = [None, ("cut", 1000)]
    folder = cached_folder(entry)
    settings = [entry.name, entry.to_json(), f"{server.url}/{NAME}", str(folder)]
    command = [sys.executable, "-c", FETCH, json.dumps(settings)]
    processes = [
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert Counter(server.requests) == Counter([(CONFIG, None), (WEIGHTS, None), (WEIGHTS, "bytes=1000-")])
    assert (folder / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()
    assert names(folder.parent) == sorted([folder.name, "config.json", "model.safetensors"])
