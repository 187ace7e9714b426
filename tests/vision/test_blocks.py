"""Shortcuts where width or resolution change, and what the blocks feed them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from rskip.connections import parse_connection
from rskip.vision.blocks import BasicBlock, Bottleneck, ZeroPad, build_shortcut

ADD = parse_connection("1xskip")


def test_zero_pad_has_no_parameters_and_keeps_channels_last():
    shortcut = ZeroPad(4, 8, stride=2)
    x = torch.randn(2, 4, 6, 6)
    y = shortcut(x.contiguous(memory_format=torch.channels_last))
    assert not list(shortcut.parameters())
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(y, shortcut(x))
    gradients = []
    inner = x.contiguous(memory_format=torch.channels_last).requires_grad_() * 1
    inner.register_hook(gradients.append)
    shortcut(inner).backward(y)
    assert gradients[0].is_contiguous(memory_format=torch.channels_last)


def test_projection_is_a_strided_linear_map_of_each_pixel():
    shortcut = build_shortcut("projection", 3, 5, stride=2)
    x = torch.randn(2, 3, 4, 4)
    expected = torch.einsum("oc,nchw->nohw", shortcut.weight[:, :, 0, 0], x[:, :, ::2, ::2])
    torch.testing.assert_close(shortcut(x), expected)
    assert [name for name, _ in shortcut.named_parameters()] == ["weight"]


def silent(block: BasicBlock | Bottleneck) -> BasicBlock | Bottleneck:
    """The block with a branch that gives 0, and a normalisation that does something."""
    last = block.conv3 if isinstance(block, Bottleneck) else block.conv2
    nn.init.zeros_(last.weight)
    nn.init.uniform_(block.bn1.weight, 0.5, 2)
    nn.init.uniform_(block.bn1.bias, -1, 1)
    return block


def activated(block: BasicBlock | Bottleneck, x: torch.Tensor) -> torch.Tensor:
    """ReLU(BN(x)) with the batch's own statistics, by formula."""
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
    weight, bias = block.bn1.weight.view(1, -1, 1, 1), block.bn1.bias.view(1, -1, 1, 1)
    return ((x - mean) / torch.sqrt(variance + 1e-5) * weight + bias).clamp(min=0)


def test_what_the_shortcut_carries():
    """The input itself, unless the block is the first, the shortcut a projection, or shortcut_input says otherwise."""
    for kind in (BasicBlock, Bottleneck):
        x = torch.randn(2, 4 * kind.expansion, 6, 6)
        assert torch.equal(silent(kind(4 * kind.expansion, 4, connection=ADD))(x), x)
        x = torch.randn(2, 4, 6, 6)
        block = silent(kind(4, 4, connection=ADD, first=True))
        torch.testing.assert_close(block(x), F.pad(activated(block, x), (0, 0, 0, 0, 0, 4 * kind.expansion - 4)))
        block = silent(kind(4, 8, stride=2, connection=ADD))
        assert torch.equal(block(x), F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, 8 * kind.expansion - 4)))
        block = silent(kind(4, 8, stride=2, connection=ADD, shortcut_input="activated"))
        pixels = activated(block, x)[:, :, ::2, ::2]
        torch.testing.assert_close(block(x), F.pad(pixels, (0, 0, 0, 0, 0, 8 * kind.expansion - 4)))
        wide = torch.randn(2, 4 * kind.expansion, 6, 6)
        assert torch.equal(silent(kind(4 * kind.expansion, 4, connection=ADD, shortcut_input="activated"))(wide), wide)
        block = silent(kind(4, 8, stride=2, connection=ADD, shortcut="projection"))
        assert isinstance(block.shortcut, nn.Conv2d)
        torch.testing.assert_close(block(x), block.shortcut(activated(block, x)))
