"""Small models, registries that name them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.checkpoint import Checkpoint, write_model
from rskip.files.checksum import sha256_file
from rskip.settings.paper import Paper
from rskip.vision.cifar_resnet import PreActResNet, preact_resnet
from rskip.zoo.registry import ModelEntry, ModelFile, ModelScore, read_registry, write_registry

CLASSIFIER = "preact_resnet8_2rskip_ln.cifar10"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

MakeEntry = Callable[..., ModelEntry]


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torch.hub's folder, which is not there yet; no mirror, and online."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in ("RSKIP_HUB_MIRROR", "RSKIP_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "torch/hub"


@pytest.fixture(scope="session")
def classifier() -> PreActResNet:
    """A PreAct-ResNet-8 whose every parameter and statistic has a random value."""
    generator = torch.Generator().manual_seed(1)
    model = preact_resnet(8, "2rskip+ln").eval()
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.2 + 0.1)
    return model


@pytest.fixture
def published(classifier: PreActResNet, tmp_path: Path) -> Path:
    """The folder of `classifier` as a run publishes it, in the checkout `tmp_path / "checkout"`."""
    folder = tmp_path / "checkout/checkpoints/classifier"
    publish(classifier, folder)
    return folder


def publish(model: PreActResNet, folder: Path) -> None:
    config = {"task": "vision", "model": model.config, "dataset": "cifar10", "classes": list(CLASSES)}
    write_model(folder, Checkpoint(model=model.state_dict(), config=config))


@pytest.fixture(scope="session")
def make_entry() -> MakeEntry:
    """Gives the entry of the files that a folder holds; the rest of it is made up."""

    def make_entry(folder: Path, /, **changes: Any) -> ModelEntry:
        files = {
            path.relative_to(folder).as_posix(): ModelFile(size=path.stat().st_size, sha256=sha256_file(path))
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        score = ModelScore(
            dataset="cifar10", split="test", metric="error", value=90.0, spread=None, seeds=(1,), signature=None,
            of="published weights",
        )  # fmt: skip
        values: dict[str, Any] = {
            **dict.fromkeys(("url", "commit", "checkpoint_sha256")),
            **{"name": CLASSIFIER, "task": "vision", "folder": f"checkpoints/{folder.name}", "files": files, "seed": 1},
            **{"architecture": "preact_resnet8", "connection": "2rskip+ln", "parameters": 75_290, "dtype": "float32"},
            **{"figures": (score,), "recipe": "none/plain", "licence": "MIT", "data_terms": "made up"},
            "paper": Paper(title="none", authors="nobody", url="https://paper.example", part=None),
        }
        return ModelEntry(**{**values, **changes})

    return make_entry


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[ModelEntry], Path]:
    """Makes an entry the only one of checkpoints.json in the checkout `tmp_path / "checkout"`."""

    def registry(entry: ModelEntry) -> Path:
        path = tmp_path / "checkout/checkpoints.json"
        write_registry(path, {entry.name: entry})
        monkeypatch.setattr("rskip.zoo.loading.registry_file", lambda: path)
        return path

    return registry


@pytest.fixture(scope="session")
def clone(
    root: Path, classifier: PreActResNet, make_entry: MakeEntry, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The repository with `classifier` as one model more, where torch.hub leaves "someone/rskip"."""
    folder = tmp_path_factory.mktemp("torch") / "hub/someone_rskip_main"
    for name in ("rskip", "checkpoints"):
        shutil.copytree(root / name, folder / name)
    shutil.copy(root / "hubconf.py", folder)
    publish(classifier, folder / "checkpoints/classifier")
    entries = read_registry(root / "checkpoints.json")
    entries[CLASSIFIER] = make_entry(folder / "checkpoints/classifier")
    write_registry(folder / "checkpoints.json", entries)
    return folder


@pytest.fixture
def server(published: Path, tmp_path: Path, file_server: Callable[[Path], Any]) -> Any:
    """A running server that has the files of `published` as a mirror has them: CLASSIFIER/FILE."""
    shutil.copytree(published, tmp_path / "served" / CLASSIFIER)
    return file_server(tmp_path / "served")
