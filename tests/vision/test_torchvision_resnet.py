"""torchvision's ResNets with a connection: the same model with 1xskip, another sum with the others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rskip.vision import torchvision_resnet

models = pytest.importorskip("torchvision.models", reason="needs torchvision")


def images(count: int = 2, size: int = 32) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["resnet18", "resnet50", pytest.param("resnext50_32x4d", marks=pytest.mark.slow)])
def test_1xskip_is_torchvisions_model_bit_for_bit(name):
    stock = models.get_model(name, weights=None, num_classes=5)
    ours = torchvision_resnet(name, num_classes=5)
    assert list(ours.state_dict()) == list(stock.state_dict())
    ours.load_state_dict(stock.state_dict())
    x, labels = images(size=64), torch.tensor([0, 3])
    for model in (ours, stock):
        F.cross_entropy(model.train()(x), labels).backward()
    for (name_a, a), (name_b, b) in zip(ours.named_parameters(), stock.named_parameters(), strict=True):
        assert name_a == name_b
        assert torch.equal(a.grad, b.grad), name_a
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), stock.buffers(), strict=True))
    assert torch.equal(ours.eval()(x), stock.eval()(x))


@pytest.mark.parametrize(("name", "features"), [("resnet18", 64), ("resnet50", 256)])
def test_a_block_is_relu_of_the_connection(name, features):
    stock = models.get_model(name, weights=None, num_classes=5).double().eval()
    ours = torchvision_resnet(name, "3xskip", num_classes=5).double().eval()
    ours.load_state_dict(stock.state_dict())
    x = torch.randn(2, features, 8, 8, dtype=torch.float64).relu()
    theirs, block = stock.layer1[1], ours.layer1[1]
    joined = []
    block.residuals.block.connection.register_forward_hook(lambda module, pair, y: joined.append((*pair, y)))
    y = block(x)
    shortcut, f, z = joined[0]
    assert torch.equal(shortcut, x)
    torch.testing.assert_close(theirs(x), torch.relu(x + f), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(y, torch.relu(3 * x + f), rtol=1e-12, atol=1e-12)
    assert torch.equal(y, z.relu())


def test_weights_of_torchvision_are_loaded(monkeypatch):
    trained = models.resnet18()
    asked = []

    def get_state_dict(self, **options):
        asked.append((self.name, options["progress"]))
        return trained.state_dict()

    monkeypatch.setattr(models.ResNet18_Weights, "get_state_dict", get_state_dict)
    for weights in ("IMAGENET1K_V1", "DEFAULT", models.ResNet18_Weights.IMAGENET1K_V1):
        model = torchvision_resnet("resnet18", weights=weights, progress=False)
        assert torch.equal(model.eval()(images(1, 64)), trained.eval()(images(1, 64)))
    assert asked == [("IMAGENET1K_V1", False)] * 3
    with pytest.raises(ValueError, match="num_classes"):
        torchvision_resnet("resnet18", weights="DEFAULT", num_classes=10)


def test_mistakes_are_errors_of_one_line():
    for name, options, message in [
        ("resnet19", {}, "unknown model 'resnet19' (did you mean 'resnet18'?); known: resnet18, resnet34"),
        ("vgg16", {}, "unknown model 'vgg16'; known: resnet18"),
        ("resnet18", {"connection": "2rskp+ln"}, "(did you mean '2rskip+ln'?)"),
        ("resnet18", {"connection": "prenorm+ln"}, "expected a connection that reads only x and f"),
        ("resnet18", {"connection": "2rskip+ln", "weights": "DEFAULT"}, "trained with 1xskip, not 2rskip+ln: leave"),
    ]:
        with pytest.raises(ValueError) as error:
            torchvision_resnet(name, **options)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
