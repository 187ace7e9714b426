"""The zoo without fairseq, torchvision and network; its list and descriptions also without PyTorch.

One process does it all, in which importing those packages fails, as in one where they were never installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from rskip.vision.cifar_resnet import PreActResNet
from rskip.zoo.model_card import describe, list_text
from rskip.zoo.registry import read_registry

CLASSIFIER = "preact_resnet8_2rskip_ln.cifar10"
TRANSLATOR = "transformer_tiny_2rskip_ln.multi30k.en-de"
SCRIPT = """
import contextlib, importlib.abc, io, json, socket, sys

REFUSED = {
    *("fairseq", "fairseq_compat", "omegaconf", "torchvision", "PIL", "sacrebleu", "ctranslate2", "matplotlib"),
    *("sentencepiece", "yaml", "torch", "tqdm", "pooch", "requests"),
}

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"{name} is refused")

def no_network(*args, **settings):
    raise OSError("no network")

def forget(names):
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]

# fairseq_compat's start-up hook has run already, where it is installed
sys.meta_path = [Refused(), *(finder for finder in sys.meta_path if "fairseq" not in finder.__module__)]
forget(REFUSED)
socket.socket.connect = socket.getaddrinfo = no_network
clone, classifier, translator = sys.argv[1:]

sys.path.insert(0, clone)
from rskip.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as printed:
    assert main(["zoo", "list"]) == main(["zoo", "describe", translator]) == 0
found = {"command": printed.getvalue()}
sys.path.remove(clone)
forget({"rskip"})

REFUSED.remove("torch")
import torch
found |= {"list": torch.hub.list("someone/rskip"), "help": torch.hub.help("someone/rskip:main", translator)}
import rskip
found["rskip"] = rskip.__file__
sentence = "A dog runs through the tall grass."
found["translations"] = [
    torch.hub.load("someone/rskip", translator, trust_repo=True)(sentence), rskip.load(translator)(sentence)
]
images = torch.arange(2 * 3 * 32 * 32).remainder(251).to(torch.uint8).view(2, 3, 32, 32)
found["logits"] = [model(model.transforms()(images)).tolist() for model in (
    torch.hub.load("someone/rskip:main", classifier), torch.hub.load(clone, classifier, source="local"),
)]
REFUSED -= {"tqdm", "pooch", "requests"}  # for the download of a model
import rskip.files.download
found["loaded"] = sorted(REFUSED & {name.partition(".")[0] for name in sys.modules})
print(json.dumps(found))
"""


def test_list_help_and_load(clone: Path, classifier: PreActResNet, environment: Callable[..., dict[str, str]]) -> None:
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(clone), CLASSIFIER, TRANSLATOR],
        cwd=clone.parents[2],
        env=environment(TORCH_HOME=str(clone.parents[1])),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout.splitlines()[-1])
    assert found["loaded"] == [] and found["rskip"] == str(clone / "rskip/__init__.py")

    models = read_registry(clone / "checkpoints.json")
    listed = list_text(models[name] for name in sorted(models))
    assert found["command"] == f"{listed}\n{describe(models[TRANSLATOR])}\n"
    architectures = ["captioning_transformer", "language_model", "preact_resnet", "transformer"]
    assert found["list"] == sorted([*models, *architectures])
    for part in (describe(models[TRANSLATOR]), ":param device:"):
        assert part in found["help"]

    assert found["translations"] == ["Ein Hund rennt durch das hohe Gras."] * 2
    images = torch.arange(2 * 3 * 32 * 32).remainder(251).view(2, 3, 32, 32) / 255
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    expected = classifier((images - mean.view(3, 1, 1)) / std.view(3, 1, 1))
    for logits in found["logits"]:
        assert torch.allclose(torch.tensor(logits), expected, rtol=1e-4)
