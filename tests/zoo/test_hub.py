"""hubconf.py in a checkout, by torch.hub's own functions."""

from __future__ import annotations

import builtins
import importlib.util
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.connections import XSkip
from rskip.translation import Translator
from tests.conftest import Environment
from tests.files.file_server import Answer, FileServer

TRANSLATOR = "transformer_tiny_2rskip_ln.multi30k.en-de"


def load(root: Path, name: str, *arguments: Any, **settings: Any) -> Any:
    return torch.hub.load(str(root), name, *arguments, source="local", **settings)


def test_a_clones_models_are_its_own_whichever_rskip_is_imported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("loading", "registry"):  # in this order: the former imports the function from the latter
        monkeypatch.setattr(f"rskip.zoo.{module}.registry_file", lambda: pytest.fail("looks beside the imported rskip"))
    translator = load(root, TRANSLATOR, device="cpu", dtype=torch.float32)
    assert isinstance(translator, Translator)
    assert translator("A man is sleeping.") == "Ein Mann schläft."


def test_what_comes_before_loading(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def import_of_the_library(name: str, *arguments: Any) -> Any:
        standard = name in ("sys", "pathlib", "importlib.util")
        return builtins.__import__(name, *arguments) if standard else pytest.fail(f"imports {name}")

    code = compile((root / "hubconf.py").read_text(encoding="utf-8"), "hubconf.py", "exec")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "msgspec" else find(name))
    with pytest.raises(RuntimeError, match="^rskip needs msgspec: pip install msgspec$"):
        exec(code, {"__builtins__": {**vars(builtins), "__import__": import_of_the_library}})
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(RuntimeError, match=r"^rskip needs Python 3\.10 or newer, and this is Python 3\.9$"):
        exec(code, {"__builtins__": {**vars(builtins), "__import__": import_of_the_library}})


def test_architectures_without_weights(root: Path) -> None:
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "encoder_embed_dim": 8, "decoder_embed_dim": 8}
    transformer = load(root, "transformer", 10, 12, connection="3xskip", **sizes)
    assert (transformer.config.encoder_connection, transformer.config.decoder_connection) == ("3xskip", "3xskip")
    assert len(transformer.encoder.layers) == 1 and len(transformer.decoder.layers) == 2
    assert isinstance(transformer.decoder.layers[1].encoder_attn_connection.formula, XSkip)
    language = load(root, "language_model", 12, connection="sas", decoder_layers=2)
    assert (language.vocabulary_size, language.connection, len(language.decoder.layers)) == (12, "sas", 2)
    captioning = load(root, "captioning_transformer", 12, 5, connection="sas", **sizes, grid_positions=False)
    assert (captioning.config.decoder_connection, captioning.encoder.projection.in_features) == ("sas", 5)
    model = load(root, "preact_resnet", 14, connection="2RSKIP+LN", num_classes=100)
    assert model.config == {
        "depth": 14, "connection": "2rskip+ln", "num_classes": 100, "shortcut": "zero_pad", "block": "basic",
    }  # fmt: skip


GITHUB = """
import re, sys
from urllib.request import Request, urlopen

import torch

def urlopen_here(asked, *arguments, **settings):
    url = asked.full_url if isinstance(asked, Request) else asked
    return urlopen(re.sub("^https://(api[.])?github[.]com", sys.argv[1], url), *arguments, **settings)

torch.hub.urlopen = urlopen_here
NAME = "transformer_tiny_2rskip_ln.multi30k.en-de"
translator = torch.hub.load(sys.argv[2], NAME, trust_repo=True)
import rskip
print(rskip.__file__)
print(translator("A man is sleeping."))
print("sacreBLEU" in torch.hub.help(sys.argv[3], NAME))  # from the cache, without a request
"""


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["in the archive", "at the release's address"])
def test_an_address_of_github(
    weights: str, root: Path, tmp_path: Path, file_server: Callable[[Path], FileServer], environment: Environment
) -> None:
    """The server answers as GitHub does: a page of the branch, lists of branches and tags, and an archive elsewhere."""
    model = "checkpoints/multi30k_en_de/2rskip_ln"
    (tmp_path / "served").mkdir()
    server = file_server(tmp_path / "served")
    registry = json.loads((root / "checkpoints.json").read_text("utf-8"))
    with zipfile.ZipFile(tmp_path / "served/rskip.zip", "w") as archive:
        archive.mkdir(top := "owner-rskip-0123abc")
        for name in ("hubconf.py", "rskip", *([model] if weights == "in the archive" else [])):
            for path in [root / name, *(root / name).rglob("*")]:
                if path.is_file() and path.suffix not in (".pyc", ".so"):
                    archive.write(path, f"{top}/{path.relative_to(root)}")
        archive.writestr(f"{top}/checkpoints.json", json.dumps(registry | {"url": server.url}))
    (tmp_path / "served/checkpoints").symlink_to(root / "checkpoints")
    refs = Answer(b'[{"name": "main", "commit": {"sha": "0123abcd"}}, {"name": "v0.1.0", "commit": {"sha": "89ef"}}]')
    moved = Answer(b"", 302, {"Location": f"{server.url}/rskip.zip"})
    if weights == "in the archive":
        repository, ref, server.faults = "owner/rskip", "main", [Answer(b"<html>"), refs, moved]
        asked, files = ["owner/rskip/tree/main", "repos/owner/rskip/branches"], []
    else:
        repository, ref, server.faults = "owner/rskip:v0.1.0", "v0.1.0", [Answer(b"[]"), refs, moved]
        asked = ["repos/owner/rskip/branches", "repos/owner/rskip/tags"]
        files = [f"{model}/{path}" for path in registry["models"][TRANSLATOR]["files"]]

    arguments = ["-c", GITHUB, server.url, repository, f"owner/rskip:{ref}"]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True,
        env=environment(TORCH_HOME=str(tmp_path / "home"), PYTHONPATH=""),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    package = tmp_path / f"home/hub/owner_rskip_{ref}/rskip/__init__.py"
    assert done.stdout.splitlines()[1:] == [str(package), "Ein Mann schläft.", "True"]
    asked += [f"owner/rskip/zipball/{ref}", "rskip.zip"]
    assert [each.partition("?")[0] for each in server.requests] == [*asked, *files]
