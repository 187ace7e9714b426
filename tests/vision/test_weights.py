"""Weights in torchvision's manner: found, checked, loaded into the model that they describe."""

from __future__ import annotations

import copy
import pickle
import re
from functools import partial
from pathlib import Path, PurePosixPath

import pytest
import torch
from safetensors.torch import save_file

import rskip
from rskip.files.checksum import sha256_file
from rskip.vision import CifarClassification, PreActResNet20_Weights, Weights, WeightsEnum, preact_resnet
from rskip.vision.preact_resnet_weights import BY_DEPTH
from rskip.zoo.registry import read_registry

PUBLISHED = [weights for cls in BY_DEPTH.values() for weights in cls]


def describe(path: Path, url: str, **changes: object) -> Weights:
    """Weights of a PreActResNet of depth 8 with 2rskip+ln and 5 classes."""
    meta = {
        "depth": 8,
        "connection": "2rskip+ln",
        "shortcut": "projection",
        "block": "basic",
        "categories": ["ant", "bee", "cat", "dog", "elk"],
        "sha256": sha256_file(path),
    }
    return Weights(url, partial(CifarClassification, dataset="cifar10"), {**meta, **changes})


def enum_of(member: Weights) -> type[WeightsEnum]:
    class Tiny_Weights(WeightsEnum):
        CIFAR10_2RSKIP_LN = member
        DEFAULT = CIFAR10_2RSKIP_LN

    return Tiny_Weights


@pytest.fixture
def checkpoints(tmp_path, monkeypatch) -> Path:
    """An empty folder that stands for the checkout's checkpoints/, and a cache of downloads beside it."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    monkeypatch.setattr("rskip.vision.weights.CHECKPOINTS", folder)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    return folder


@pytest.fixture
def trained():
    torch.manual_seed(1)
    model = preact_resnet(8, "2rskip+ln", 5, shortcut="projection")
    model(torch.randn(4, 3, 32, 32))  # moves the running statistics
    return model.eval()


@pytest.fixture
def shipped(checkpoints, trained) -> Path:
    """The trained model's file where a checkout has it."""
    path = checkpoints / "tiny" / "model.safetensors"
    path.parent.mkdir()
    save_file(trained.state_dict(), path)
    return path


@pytest.fixture
def tiny(shipped) -> type[WeightsEnum]:
    return enum_of(describe(shipped, "checkpoints/tiny/model.safetensors"))


def test_weights_bring_their_model(tiny, trained):
    weights = tiny.CIFAR10_2RSKIP_LN
    image = torch.arange(3 * 32 * 32).remainder(251).to(torch.uint8).view(3, 32, 32)
    x = weights.transforms()(image).unsqueeze(0)
    model = preact_resnet(8, weights=weights)
    assert model.config == trained.config
    assert torch.equal(model.eval()(x), trained(x))
    assert preact_resnet(8, "2RSKIP+LN", 5, weights=weights).config == trained.config
    assert tiny.DEFAULT is weights
    assert str(weights) == repr(weights) == "Tiny_Weights.CIFAR10_2RSKIP_LN"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"depth": 14}, "is of a model with depth 8, but depth 14 is asked for"),
        ({"connection": "1xskip+ln"}, "is of a model with connection 2rskip+ln, but connection 1xskip+ln is asked for"),
        ({"num_classes": 10}, "is of a model with num_classes 5, but num_classes 10 is asked for"),
        ({"shortcut": "zero_pad"}, "is of a model with shortcut projection, but shortcut zero_pad is asked for"),
        ({"block": "bottleneck"}, "is of a model with block basic, but block bottleneck is asked for"),
    ],
)
def test_another_model_than_the_weights_have_is_an_error_that_names_both(tiny, asked, message):
    with pytest.raises(ValueError, match=re.escape("Tiny_Weights.CIFAR10_2RSKIP_LN " + message)):
        preact_resnet(**{"depth": 8, **asked}, weights=tiny.DEFAULT)


def test_a_file_of_another_model_is_an_error(shipped):
    weights = enum_of(describe(shipped, "checkpoints/tiny/model.safetensors", connection="sas")).DEFAULT
    with pytest.raises(ValueError, match="doesn't hold the model that it describes .*='sas'.* has shape none"):
        preact_resnet(8, weights=weights)


def test_a_changed_file_is_an_error_unless_unchecked(tiny, shipped, trained):
    weights = tiny.DEFAULT
    state = trained.state_dict()
    save_file({**state, "fc.bias": state["fc.bias"] + 1}, shipped)
    with pytest.raises(ValueError, match=f"{shipped} has the sha256 .*, expected {weights.meta['sha256']}"):
        preact_resnet(8, weights=weights)
    assert torch.equal(weights.get_state_dict(check_hash=False)["fc.bias"], state["fc.bias"] + 1)


def test_a_pickle_is_refused(shipped, trained):
    torch.save(trained.state_dict(), shipped)
    weights = enum_of(describe(shipped, "checkpoints/tiny/model.safetensors")).DEFAULT
    with pytest.raises(ValueError, match="model.safetensors can't be read as safetensors .*: weights are read from no"):
        preact_resnet(8, weights=weights)


def test_a_cut_off_file_is_refused(shipped):
    shipped.write_bytes(shipped.read_bytes()[:-10])
    weights = enum_of(describe(shipped, "checkpoints/tiny/model.safetensors")).DEFAULT
    with pytest.raises(ValueError, match="can't be read as safetensors"):
        weights.get_state_dict()


def test_weights_that_ship_with_the_checkout_and_are_missing(tiny, shipped):
    weights = tiny.DEFAULT
    shipped.unlink()
    with pytest.raises(FileNotFoundError, match=f"^{shipped} is missing: Tiny_Weights.CIFAR10_2RSKIP_LN comes with"):
        preact_resnet(8, weights=weights)


def test_a_download_is_kept_and_checked(checkpoints, trained, tmp_path, capsys):
    source = tmp_path / "server" / "tiny run" / "model.safetensors"
    source.parent.mkdir(parents=True)
    save_file(trained.state_dict(), source)
    weights = enum_of(describe(source, source.as_uri())).DEFAULT
    assert torch.equal(weights.get_state_dict(progress=False)["conv1.weight"], trained.conv1.weight)
    assert capsys.readouterr().err == ""
    source.unlink()
    assert torch.equal(weights.get_state_dict()["conv1.weight"], trained.conv1.weight)
    kept = list((tmp_path / "hub" / "checkpoints").iterdir())
    assert [path.name for path in kept] == [f"tiny run-{weights.meta['sha256'][:8]}-model.safetensors"]
    kept[0].write_bytes(b"broken")
    with pytest.raises(ValueError, match="has the sha256 .*: remove it and get it again"):
        weights.get_state_dict()


def test_a_download_that_fails_names_the_address(checkpoints, tmp_path, trained):
    source = tmp_path / "server" / "tiny" / "model.safetensors"
    source.parent.mkdir(parents=True)
    save_file(trained.state_dict(), source)
    weights = enum_of(describe(source, source.as_uri())).DEFAULT
    source.unlink()
    with pytest.raises(OSError, match=f"^{source.as_uri()} can't be downloaded .*: check the network, try again"):
        weights.get_state_dict(progress=False)
    assert not list((tmp_path / "hub" / "checkpoints").iterdir())


def test_the_checkouts_own_file_goes_before_a_download(shipped, trained):
    weights = enum_of(describe(shipped, "https://example.invalid/main/checkpoints/tiny/model.safetensors")).DEFAULT
    assert torch.equal(weights.get_state_dict()["fc.weight"], trained.fc.weight)


def test_verify_takes_members_and_names(tiny):
    assert tiny.verify(None) is None
    for name in ("CIFAR10_2RSKIP_LN", "Tiny_Weights.CIFAR10_2RSKIP_LN", "DEFAULT", tiny.DEFAULT):
        assert tiny.verify(name) is tiny.CIFAR10_2RSKIP_LN
    with pytest.raises(ValueError, match=r"^unknown weights 'CIFAR10_3RSKIP_LN' of Tiny_Weights \(did you mean"):
        tiny.verify("CIFAR10_3RSKIP_LN")
    with pytest.raises(ValueError, match="^weights must be of PreActResNet20_Weights, or the name of one, not Tiny"):
        PreActResNet20_Weights.verify(tiny.DEFAULT)


def test_a_name_is_looked_up_in_the_depths_class(tiny, trained, monkeypatch):
    monkeypatch.setitem(BY_DEPTH, 8, tiny)
    for name in ("DEFAULT", "Tiny_Weights.CIFAR10_2RSKIP_LN"):
        assert torch.equal(preact_resnet(8, weights=name).fc.weight, trained.fc.weight)
    with pytest.raises(ValueError, match="is of a model with depth 8, but depth 20 is asked for"):
        preact_resnet(20, weights="Tiny_Weights.DEFAULT")
    with pytest.raises(ValueError, match="^no weights 'DEFAULT' for depth 26; there are classes PreActResNet20_"):
        preact_resnet(26, weights="DEFAULT")
    with pytest.raises(ValueError, match="^weights must be a member of a weights class or its name, not 3"):
        preact_resnet(8, weights=3)


def test_members_are_copied_and_pickled_by_name():
    assert copy.deepcopy(Module_Weights.ONE) is Module_Weights.ONE
    assert pickle.loads(pickle.dumps(Module_Weights.ONE)) is Module_Weights.ONE


class Module_Weights(WeightsEnum):
    ONE = Weights("checkpoints/one/model.safetensors", partial(CifarClassification, dataset="cifar10"), {"depth": 8})


def test_there_is_a_member_for_each_model_of_the_registry():
    classifiers = {entry.folder for entry in read_registry().values() if entry.task == "image-classification"}
    assert {str(PurePosixPath(weights.url).parent) for weights in PUBLISHED} == classifiers


@pytest.mark.parametrize("weights", PUBLISHED, ids=str)
def test_published_weights_are_the_registrys_model(weights):
    folder = str(PurePosixPath(weights.url).parent)
    (entry,) = (entry for entry in read_registry().values() if entry.folder == folder)
    depth = next(depth for depth, cls in BY_DEPTH.items() if isinstance(weights, cls))
    model, loaded = preact_resnet(depth, weights=weights).eval(), rskip.load(entry.name)
    assert model.config == loaded.config and model.config["connection"] == entry.connection
    assert weights.meta["categories"] == list(loaded.classes)
    assert weights.meta["num_params"] == entry.parameters == sum(each.numel() for each in model.parameters())
    assert weights.meta["sha256"] == entry.files["model.safetensors"].sha256
    assert weights.meta["recipe"] == entry.recipe
    (figures,) = weights.meta["metrics"].values()
    assert figures["acc@1"] == pytest.approx(100 - entry.figures[0].value, abs=0.005)
    picture = torch.arange(3 * 32 * 32).remainder(251).to(torch.uint8).view(1, 3, 32, 32)
    assert torch.equal(model(weights.transforms()(picture)), loaded(loaded.transforms()(picture)))
