"""What an extra brings and is missing: the error, and the command for each way of installing rskip."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from rskip import extras
from rskip.extras import MissingExtra, extra, has_torch, install_command, require_torch


def test_a_missing_module_is_named_with_its_extra_and_the_command(root: Path) -> None:
    with pytest.raises(MissingExtra) as caught, extra("plots", what="a plot"):
        import no_such_package.part  # noqa: F401
    assert str(caught.value) == (
        f'a plot needs no_such_package: install the extra plots with pip install -e "{root}[plots]"'
    )
    assert isinstance(caught.value, ImportError) and isinstance(caught.value, ValueError)
    assert caught.value.name == "no_such_package"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_one_of_several_extras_and_a_module_that_is_there_but_broken(root: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "broken_module.py").write_text("from json import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtra) as caught, extra("vision", "captioning", what="an image"):
        import broken_module  # noqa: F401
    assert re.fullmatch(
        r"an image needs json, which can't be imported \(cannot import name 'no_such_name' .*\): install one of the "
        r"extras vision, captioning with pip install -e \"" + re.escape(str(root)) + r"\[EXTRA\]\"",
        str(caught.value),
    )


@pytest.mark.parametrize("error", [ImportError("libc10.so: no such file", name="torch._C"), OSError("no libcudart.so")])
def test_a_pytorch_that_is_there_but_broken(error: Exception, monkeypatch) -> None:
    class Broken:
        @staticmethod
        def find_spec(name, path=None, target=None):
            raise error

    monkeypatch.setattr(sys, "meta_path", [Broken])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not has_torch()
    with pytest.raises(MissingExtra) as caught:
        require_torch("a model")
    advised = "pip install --force-reinstall torch"
    assert str(caught.value) == f"a model needs torch, which can't be imported ({error}): {advised}"


def test_errors_of_rskip_itself_and_of_an_extra_within_stay_as_they_are() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'rskip.nowhere'"), extra("plots"):
        import rskip.nowhere  # noqa: F401
    with pytest.raises(MissingExtra, match="^translation needs"), extra("vision"), extra("translation"):
        import no_such_package  # noqa: F401


@pytest.mark.parametrize(
    ("recorded", "command"),
    [
        (None, 'pip install "rskip[onnx]"'),
        ({"url": "file:///w/rskip-1-py3-none-any.whl", "archive_info": {}},
         'pip install "rskip[onnx] @ file:///w/rskip-1-py3-none-any.whl"'),
        ({"url": "https://host.example/rskip", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
         'pip install "rskip[onnx] @ git+https://host.example/rskip@abc"'),
    ],
)  # fmt: skip
def test_the_command_is_for_what_rskip_was_installed_from(recorded, command, tmp_path, monkeypatch) -> None:
    """An index, which pip records nothing of, a wheel, a repository."""
    content = None if recorded is None else json.dumps(recorded)
    monkeypatch.setattr(metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: content))
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages/rskip/extras.py"))
    assert install_command("onnx") == command


def test_no_page_or_message_says_to_install_rskip_from_an_index_before_there_is_a_release(root: Path) -> None:
    if json.loads((root / "checkpoints.json").read_text("utf-8"))["url"] is not None:
        pytest.skip("there is a release")
    told = re.compile(r"""pip install (-U |--upgrade )?["']?rskip(\[[\w,]+\])?["']?(?! @)(?![\w./\[])""")
    files = [*root.glob("*.md"), *(root / "docs").glob("*.md"), *(root / "rskip").rglob("*.py")]
    files = [path for path in files if path != root / "rskip/extras.py"]
    assert told.search("`pip install rskip`") and told.search("pip install 'rskip[onnx]'")
    assert not told.search('pip install "rskip[onnx] @ file:///x.whl"')
    assert [str(path) for path in files if told.search(path.read_text("utf-8"))] == []


SCRIPT = """
import contextlib, io, sys

REFUSED = {*sys.argv[1].split()}

class Refused:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path = [Refused, *(finder for finder in sys.meta_path if "fairseq" not in finder.__module__)]
import torch
from rskip.connections import build_connection
connection = build_connection("2rskip+ln", 8)
assert connection(torch.ones(3, 8), torch.ones(3, 8)).shape == (3, 8)

import rskip, rskip.checkpoint, rskip.cpu, rskip.generation, rskip.transformer
from rskip.cli.main import main
for command in (["zoo", "list"], ["zoo", "describe", "preact_resnet20_1xskip.cifar10"], []):
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(command) == 0
from rskip.vision import preact_resnet
assert preact_resnet(8, "sas")(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
for load in (
    lambda: rskip.load("transformer_tiny_2rskip_ln.multi30k.en-de"),
    lambda: rskip.load("preact_resnet20_1xskip.cifar10"),
    lambda: rskip.load("captioning_transformer_tiny_sas.flickr8k"),
):
    try:
        load()
    except ValueError as error:
        print(error)
print(main(["run", "recipes/cifar10_fast.yaml"]))
"""


def test_with_torch_alone_connections_and_models_work_and_loading_names_the_extra(root: Path, environment) -> None:
    """What setup.py brings with the extra `torch` is all that is there."""
    needed = ("numpy", "safetensors", "msgspec", "filelock", "torch", "rskip", "ray", "pip", "setuptools")
    brought = {re.split(r"[^\w.-]", each)[0] for each in metadata.requires("rskip") or []}
    assert {*needed[:4]} < brought
    others = {"PyYAML": "yaml", "subword-nmt": "subword_nmt", "pillow": "PIL", "backports.zstd": "backports"}
    refused = {others.get(each, each.replace("-", "_")) for each in brought} - {*needed}
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, " ".join(sorted(refused | {"fairseq", "tqdm"}))],
        cwd=root, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    translator, *others, status = process.stdout.splitlines()
    assert re.search("translation needs .*: install the extra translate with pip ", translator)
    assert others and all(re.search(" needs .*: install (the extra|one of the extras) ", each) for each in others)
    assert status == "2" and "YAML needs yaml: install one of the extras translation, vision, captioning with" in (
        process.stderr
    )
