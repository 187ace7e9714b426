"""Vision transformers: timm's model with prenorm+ln, other connections by name, and their training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rskip.settings.errors import SettingError
from rskip.vision import Classifier, vision_transformer
from rskip.vision.data import ImageSet
from rskip.vision.model_file import build_model, model_config
from rskip.vision.settings import TrainingSettings, chosen_schedule
from rskip.vision.training import parameter_groups, train
from tests.vision.conftest import noise

VisionTransformer = pytest.importorskip("timm.models.vision_transformer", reason="needs timm").VisionTransformer
SMALL = {"features": 16, "heads": 2, "patch": 8}
TINY = {"model": "vit", "depth": 2, **SMALL, "optimiser": "adamw", "schedule": "one_cycle", "lr": 1e-3}
TINY |= {"warmup_lr": 5e-5}


def test_prenorm_is_timms_model_bit_for_bit():
    ours = vision_transformer(3, num_classes=5, **SMALL).eval()
    stock = VisionTransformer(
        img_size=32, patch_size=8, num_classes=5, embed_dim=16, depth=3, num_heads=2, class_token=False,
        global_pool="avg",
    ).eval()  # fmt: skip
    assert list(ours.state_dict()) == list(stock.state_dict())
    stock.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ours(x), stock(x))


@pytest.mark.parametrize("spec", ["2rskip+ln", "sas", "mhc", "attnres", "residual_dual"])
def test_a_config_builds_the_model_with_any_connection(spec):
    config = model_config(TrainingSettings(connection=spec, **TINY), 7)
    model = build_model(config)
    assert config == model.config and config["connection"] == spec
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 7)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_training_ends_with_a_classifier(tmp_path, monkeypatch):
    plain = ImageSet(torch.zeros(64, 3, 32, 32, dtype=torch.uint8), torch.arange(64) % 2, tuple("abcdefghij"))
    plain.images[1::2, 0] = 255  # the odd ones are red
    monkeypatch.setattr("rskip.vision.training.load_dataset", lambda *_, **__: plain)
    settings = TrainingSettings(connection="mhc", batch_size=16, epochs=5, **{**TINY, "lr": 5e-3})
    run = train(settings, folder=tmp_path, seed=1)
    assert isinstance(run.optimiser, torch.optim.AdamW)
    assert run.points[-1].test_error == 0
    classifier = Classifier.from_pretrained(tmp_path)
    assert len(classifier.classify(noise(3).images)) == 3
    again = [each.score for each in classifier.classify(noise(3).images)]
    run.model.eval()
    with torch.inference_mode():
        logits = run.model(classifier.transforms()(noise(3).images))
    torch.testing.assert_close(torch.tensor(again), logits.softmax(1).amax(1), rtol=1e-5, atol=1e-6)


def test_only_weights_of_layers_decay():
    model = build_model(model_config(TrainingSettings(connection="sas", **TINY), 10))
    decayed = parameter_groups(model, TrainingSettings(connection="sas", decay="weights", **TINY))[0]["params"]
    layers = {name: each for name, each in model.named_modules() if isinstance(each, (nn.Linear, nn.Conv2d))}
    weights = {id(layer.weight) for name, layer in layers.items() if "residuals" not in name}
    assert {id(each) for each in decayed} == weights


def test_the_chosen_schedule_is_adamws():
    rule = {"batch_size": 128, "epochs": 30, "schedule": "one_cycle", "lr": 0.001, "warmup_lr": 5e-5}
    rule |= {"optimiser": "adamw", "weight_decay": 0.05, "decay": "weights", "depth": 12, "connection": "prenorm+ln"}
    assert chosen_schedule(50_000, {"model": "vit"}) == rule
    assert chosen_schedule(50_000, {"model": "vit", "optimiser": "sgd"})["nesterov"]


@pytest.mark.parametrize(("options", "words"), [({"features": 17}, "the 2 heads"), ({"patch": 5}, "32 pixels")])
def test_a_shape_that_is_not_possible_is_named(options, words):
    with pytest.raises(SettingError, match=words):
        vision_transformer(2, **{**SMALL, **options})
