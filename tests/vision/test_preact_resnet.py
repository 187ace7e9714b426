"""PreAct-ResNets: He's network with each connection, its parameters, its first and last activation."""

from __future__ import annotations

import math
import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import rskip.vision
from rskip.connections import Connection, build_connection
from rskip.nn import adapt
from rskip.vision import CifarClassification, PreActResNet, preact_resnet, preact_resnet164, torchvision_resnet


def images(count: int = 2, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random ones of mean 0 and standard deviation 1."""
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def step(model: PreActResNet) -> None:
    """One training step, so that parameters and running statistics are no longer the initial ones."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    F.cross_entropy(model.train()(images(4, seed=1)), torch.tensor([0, 1, 2, 3])).backward()
    optimiser.step()


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


COUNTS = {  # depth: 1xskip; for two depths also with 100 classes, and what +ln, 2rskip+ln, wskip+ln and sas add
    20: (269_722, 275_572, 672, 1_344, 1_008, 66_546),
    32: (464_154,),
    44: (658_586,),
    56: (853_018,),
    110: (1_727_962, 1_733_812, 4_032, 8_064, 6_048, 399_276),
}


def test_parameter_counts():
    for depth, (baseline, *others) in COUNTS.items():
        build = getattr(rskip.vision, f"preact_resnet{depth}")
        with torch.device("meta"):
            assert count(build()) == baseline, depth
            if others:
                assert count(build(num_classes=100)) == others[0]
                extra = [count(build(spec)) - baseline for spec in ("1xskip+ln", "2rskip+ln", "wskip+ln", "sas")]
                assert extra == others[1:]


def test_parameters_of_bottlenecks_and_projections():
    # convolutions and BNs by hand: 1×1 to w, 3×3, 1×1 to 4w, with a BN before each of the three
    expected = 3 * 9 * 16
    inputs = 16
    for width in (16, 32, 64):
        for _ in range(18):
            expected += inputs * width + 9 * width**2 + 4 * width**2 + 2 * inputs + 4 * width
            inputs = 4 * width
    expected += 2 * 256 + 256 * 10 + 10
    projections = 16 * 64 + 64 * 128 + 128 * 256
    with torch.device("meta"):
        assert count(preact_resnet164()) == expected + projections == 1_703_258
        assert count(preact_resnet(164, block="bottleneck")) == expected
        assert count(preact_resnet(20, shortcut="projection")) == 269_722 + 16 * 32 + 32 * 64


class PlainPreActResNet20(nn.Module):
    """The network in plain PyTorch, members in the order of PreActResNet's."""

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int, first: bool) -> None:
            super().__init__()
            self.bn_a = nn.BatchNorm2d(inputs)
            self.conv_a = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
            self.bn_b = nn.BatchNorm2d(outputs)
            self.conv_b = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.stride, self.extra, self.first = stride, outputs - inputs, first

        def forward(self, x: Tensor) -> Tensor:
            before = torch.relu(self.bn_a(x))
            residual = self.conv_b(torch.relu(self.bn_b(self.conv_a(before))))
            identity = before if self.first else x
            if self.extra:
                identity = F.avg_pool2d(identity, 1, stride=self.stride)
                identity = torch.cat([identity, torch.zeros_like(identity)[:, : self.extra]], dim=1)
            return identity + residual

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        sizes = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.blocks = nn.Sequential(*(self.Block(*size, first=n == 0) for n, size in enumerate(sizes)))
        self.bn = nn.BatchNorm2d(64)
        self.classifier = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.blocks(self.stem(x))))
        return self.classifier(F.avg_pool2d(x, 8).flatten(1))


def test_the_baseline_is_the_plain_network():
    torch.manual_seed(1)
    model, plain = preact_resnet(20).double(), PlainPreActResNet20().double()
    names = list(plain.state_dict())
    assert len(names) == len(model.state_dict())
    plain.load_state_dict(dict(zip(names, model.state_dict().values(), strict=True)))
    x, labels = images(3, dtype=torch.float64), torch.tensor([1, 5, 9])
    for ours, theirs in ((model.train(), plain.train()), (model.eval(), plain.eval())):
        y, z = ours(x), theirs(x)
        torch.testing.assert_close(y, z, rtol=1e-12, atol=1e-12)
        gradients = [
            torch.autograd.grad(F.cross_entropy(logits, labels), list(network.parameters()))
            for logits, network in ((y, ours), (z, theirs))
        ]
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    for a, b in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_each_block_joins_shortcut_and_branch_by_the_connection():
    model = preact_resnet(8, "2rskip+ln").double()
    step_block = model.layer2[0]
    x = torch.randn(2, 16, 8, 8, dtype=torch.float64)
    alone = build_connection("2rskip+ln", 32, feature_dim=1).double()
    f = step_block.branch(torch.relu(step_block.bn1(x)))
    expected = alone(F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, 16)), f)
    torch.testing.assert_close(step_block(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:adapt left unchanged")
def test_streams_connect_the_blocks_within_a_stage():
    torch.manual_seed(1)
    model, plain = preact_resnet(20, "hyper").double(), adapt(PlainPreActResNet20(), "hyper").double()
    state = {name: value for name, value in plain.state_dict().items() if "spec_record" not in name}
    plain.load_state_dict(dict(zip(state, model.state_dict().values(), strict=True)), strict=False)
    x = images(2, dtype=torch.float64)
    torch.testing.assert_close(model(x), plain(x), rtol=1e-12, atol=1e-12)
    streams = [name for name, module in model.named_modules() if isinstance(module, Connection)]
    assert streams == [f"layer{stage}.{block}.residuals.block.connection" for stage in (1, 2, 3) for block in (1, 2)]
    again = preact_resnet(**model.config).double()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.eval()(x), model.eval()(x))


def test_every_connection_gives_every_parameter_a_finite_gradient(connection):
    torch.manual_seed(0)
    model = preact_resnet(8, connection)
    if connection in ("rezero", "laurel"):  # which cut something off at first
        for block in filter(lambda module: isinstance(module, Connection), model.modules()):
            nn.init.uniform_(block.alpha if connection == "rezero" else block.up.weight, 0.1, 0.2)
    logits = model(images())
    assert torch.isfinite(logits).all()
    F.cross_entropy(logits, torch.tensor([3, 7])).backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all() and parameter.grad.abs().max() > 0, name


def test_every_connection_is_built_again_from_a_file_and_takes_each_image_by_itself(connection, tmp_path):
    torch.manual_seed(0)
    model = preact_resnet(8, connection, 7, shortcut="projection")
    before = model.eval()(images())
    step(model)
    expected = model.eval()(images())
    assert not torch.equal(before, expected)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    again = preact_resnet(**model.config)
    assert again.config == model.config
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(again.eval()(images()), expected)

    again.double()
    state = {name: tensor.clone() for name, tensor in again.state_dict().items()}
    x = images(3, dtype=torch.float64)
    y = again(x)
    assert torch.equal(again(x), y)
    torch.testing.assert_close(again(x[1:2]), y[1:2], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(again(x.flip(0)), y.flip(0), rtol=1e-10, atol=1e-10)
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.state_dict().items())


@pytest.mark.parametrize("spec", ["1xskip", "2rskip+ln", "2rskip+rms", "2rskip+bn", "sas", "highway"])
def test_autocast_to_bfloat16_computes_nearly_the_same(spec):
    torch.manual_seed(0)
    model = preact_resnet(8, spec)
    expected = model(images())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(images())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, rtol=0, atol=0.1)
    assert expected.std() > 0.2
    y.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


def test_initial_values():
    torch.manual_seed(0)
    model = preact_resnet(20, "sas:alpha_bias=3,beta_bias=-3", 100, shortcut="projection")
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 2000:
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.05)
    assert model.fc.bias.abs().max() == 0
    assert 0.95 / 8 < model.fc.weight.abs().max() <= 1 / 8
    joined = model.layer3[2].connection
    for gate, bias in ((joined.alpha_gate, 3), (joined.beta_gate, -3)):
        assert 0.95 / math.sqrt(128) < gate.hidden.weight.abs().max() <= 1 / math.sqrt(128)
        assert gate.hidden.bias.abs().max() == 0
        assert gate.output.bias.item() == bias


def test_a_seed_gives_one_model_and_baseline_and_norms_start_alike():
    def build(spec: str) -> dict[str, Tensor]:
        torch.manual_seed(5)
        return preact_resnet(8, spec).state_dict()

    assert all(torch.equal(a, b) for a, b in zip(build("sas").values(), build("sas").values(), strict=True))
    baseline, recursive = build("1xskip"), build("2rskip+ln")
    assert all(torch.equal(tensor, recursive[name]) for name, tensor in baseline.items())


def test_mistakes_are_errors_of_one_line():
    for arguments, options, message in (
        ((2,), {}, "depth is 2: expected 6n+2 with basic blocks; the smallest is 8"),
        ((20.0,), {}, "depth is 20.0: expected a whole number"),
        ((8, "hyper"), {}, "expected a connection that reads only x and f, since layer1.0"),
        ((20, "1xskip", 0), {}, "num_classes is 0: expected"),
        ((164,), {"block": "bottlenek"}, "block is 'bottlenek': expected basic or bottleneck (did you mean"),
        ((20,), {"shortcut": "projection", "shortcut_input": "activated"}, "shortcut_input is for zero_pad"),
    ):
        with pytest.raises(ValueError) as error:
            preact_resnet(*arguments, **options)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_models_and_transforms_need_no_torchvision(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # importing it fails
    x = CifarClassification()(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    assert preact_resnet(8, "sas")(x).shape == (2, 10)
    with pytest.raises(ValueError, match="^resnet18 needs torchvision: install the extra vision with"):
        torchvision_resnet("resnet18")


def test_channels_last_computes_the_same(connection):
    torch.manual_seed(0)
    model = preact_resnet(8, connection).double()
    contiguous = model(images(dtype=torch.float64))
    kept = []
    model.layer3.register_forward_hook(lambda module, inputs, y: kept.append(y))
    model = model.to(memory_format=torch.channels_last)
    y = model(images(dtype=torch.float64).contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(y, contiguous, rtol=1e-9, atol=1e-9)
    assert kept[0].is_contiguous(memory_format=torch.channels_last)
