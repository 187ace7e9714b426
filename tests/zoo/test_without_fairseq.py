"""torch.hub's list, help and load where neither fairseq nor torchvision nor a network is to be had."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.vision.preact_resnet import PreActResNet
from rskip.zoo.registry import read_registry

CLASSIFIER = "preact_resnet8_2rskip_ln.cifar10"
TRANSLATOR = "transformer_tiny_2rskip_ln.multi30k.en-de"

SCRIPT = """
import importlib.abc, json, socket, sys

REFUSED = {
    *("fairseq", "fairseq_compat", "omegaconf", "torchvision", "PIL", "sacrebleu", "ctranslate2", "matplotlib"),
    *("sentencepiece", "yaml"),
}

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"{name} is refused")

def no_network(*args, **settings):
    raise OSError("no network")

# fairseq_compat's start-up hook has run already, where it is installed
sys.meta_path = [Refused(), *(finder for finder in sys.meta_path if "fairseq" not in finder.__module__)]
for name in [name for name in sys.modules if name.partition(".")[0] in REFUSED]:
    del sys.modules[name]
socket.socket.connect = socket.getaddrinfo = no_network

import torch
clone, classifier, translator = sys.argv[1:]
found = {"list": torch.hub.list("someone/rskip"), "help": torch.hub.help("someone/rskip:main", translator)}
import rskip, rskip.files.download  # the latter as a model's download does
found["rskip"] = rskip.__file__
translate = torch.hub.load("someone/rskip", translator, trust_repo=True)
found["translation"] = translate("A dog runs through the tall grass.")
for key, model in {
    "github": torch.hub.load("someone/rskip:main", classifier),
    "local": torch.hub.load(clone, classifier, source="local"),
}.items():
    images = torch.arange(2 * 3 * 32 * 32).remainder(251).to(torch.uint8).view(2, 3, 32, 32)
    found[key] = model(model.transforms()(images)).tolist()
found["loaded"] = sorted(REFUSED & {name.partition(".")[0] for name in sys.modules})
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(clone: Path, environment: Callable[..., dict[str, str]]) -> dict[str, Any]:
    """What a process sees in which importing those packages fails, as in one where they were never installed."""
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(clone), CLASSIFIER, TRANSLATOR],
        cwd=clone.parents[2],
        env=environment(TORCH_HOME=str(clone.parents[1])),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result


def test_nothing_refused_was_imported(found: dict[str, Any], clone: Path) -> None:
    assert found["loaded"] == []
    assert found["rskip"] == str(clone / "rskip/__init__.py")


def test_list(found: dict[str, Any], clone: Path) -> None:
    models = read_registry(clone / "checkpoints.json")
    assert {CLASSIFIER, TRANSLATOR} <= set(models)
    assert found["list"] == sorted([*models, "preact_resnet", "transformer"])


def test_help(found: dict[str, Any], clone: Path) -> None:
    figure = read_registry(clone / "checkpoints.json")[TRANSLATOR].figures[0]
    for part in (TRANSLATOR, "2rskip+ln", "sacreBLEU", f"{figure.value:.2f}", "MIT", ":param device:"):
        assert part in found["help"]


def test_translate(found: dict[str, Any]) -> None:
    assert found["translation"] == "Ein Hund rennt durch das hohe Gras."


@pytest.mark.parametrize("source", ["github", "local"])
def test_classify(found: dict[str, Any], classifier: PreActResNet, source: str) -> None:
    images = torch.arange(2 * 3 * 32 * 32).remainder(251).view(2, 3, 32, 32) / 255
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    expected = classifier((images - mean.view(3, 1, 1)) / std.view(3, 1, 1))
    assert torch.allclose(torch.tensor(found[source]), expected, rtol=1e-4)
