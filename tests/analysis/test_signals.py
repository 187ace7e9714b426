"""Signals and gradients against brute force."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import rskip
from rskip.analysis.blocks import residual_blocks
from rskip.analysis.signals import SignalRecorder, similarity
from rskip.connections import Connection
from rskip.transformer import Transformer, TransformerConfig
from rskip.vision import preact_resnet, vision_transformer

CONNECTIONS = ["1xskip", "2rskip+ln", "wskip+ln", "sas:alpha_bias=3,beta_bias=-3", "highway"]


def tiny_transformer(connection: str) -> Transformer:
    torch.manual_seed(1)
    return Transformer(
        TransformerConfig.from_dict(
            {
                "source_vocabulary": 20, "target_vocabulary": 20, "encoder_layers": 2, "decoder_layers": 2,
                "encoder_embed_dim": 8, "decoder_embed_dim": 8, "encoder_ffn_embed_dim": 16,
                "decoder_ffn_embed_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
                "encoder_connection": connection, "decoder_connection": connection, "dropout": 0.0,
            }
        )
    )  # fmt: skip


def test_blocks_are_numbered_in_the_order_of_computing():
    blocks = residual_blocks(preact_resnet(110, "2rskip+ln"))
    assert len(blocks) == 54
    middle = [block.number for block in blocks if block.stage == "layer2"]
    assert middle == list(range(19, 37))
    assert (blocks[18].name, blocks[18].sublayer) == ("layer2.0", "")
    names = [block.name for block in residual_blocks(tiny_transformer("1xskip+ln"))]
    assert names[:3] == ["encoder.layers.0.self_attn", "encoder.layers.0.ffn", "encoder.layers.1.self_attn"]
    assert names[4:7] == ["decoder.layers.0.self_attn", "decoder.layers.0.encoder_attn", "decoder.layers.0.ffn"]
    with pytest.raises(ValueError, match="no residual blocks"):
        residual_blocks(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_images_equal_brute_force(connection):
    torch.manual_seed(1)
    model = preact_resnet(20, connection).double().eval()
    images, labels = torch.randn(3, 3, 32, 32).double(), torch.tensor([1, 5, 9])
    blocks = residual_blocks(model)
    recorder = SignalRecorder(blocks)
    for batch in (slice(0, 2), slice(2, 3)):
        with recorder.recording():
            F.cross_entropy(model(images[batch]), labels[batch], reduction="sum").backward()

    calls: dict[Connection, list] = {block.connection: [] for block in blocks}
    handles = [c.register_forward_hook(lambda c, xf, y: calls[c].append((*xf, y))) for c in calls]
    losses = [F.cross_entropy(model(images[i : i + 1]), labels[i : i + 1]) for i in range(3)]
    for handle in handles:
        handle.remove()
    for block, row in zip(blocks, recorder.rows(), strict=True):
        per_example = calls[block.connection]
        gradients = [
            torch.autograd.grad(loss, y, retain_graph=True)[0].norm()
            for loss, (_, _, y) in zip(losses, per_example, strict=True)
        ]
        assert row["gradient"] == pytest.approx(torch.stack(gradients).mean().item(), rel=1e-9)
        for index, name in enumerate(("x_rms", "f_rms", "y_rms")):
            tensors = torch.cat([call[index].detach() for call in per_example])
            assert row[name] == pytest.approx(tensors.square().mean().sqrt().item(), rel=1e-9)
        if connection.startswith("sas"):
            both = torch.cat([torch.cat([x, f], 1).movedim(1, -1) for x, f, _ in per_example])
            alpha, beta = block.connection.alpha_gate(both), block.connection.beta_gate(both)
            for name, factor in (("alpha", alpha), ("beta", beta), ("gamma", (1 - alpha) * (1 - beta))):
                assert row[name] == pytest.approx(factor.mean().item(), rel=1e-9)
        if connection == "highway":
            factors = [block.connection.gate(x.movedim(1, -1)) for x, _, _ in per_example]
            assert row["transform"] == pytest.approx(torch.cat(factors).mean().item(), rel=1e-9)


@pytest.mark.parametrize("of_vit, of_resnet", [("prenorm+ln", "1xskip"), ("2rskip+ln", "1xskip+ln")])
def test_all_blocks_of_adapted_models_are_seen_with_their_gradients(of_vit, of_resnet):
    models = pytest.importorskip("torchvision", reason="needs the extra vision").models
    vit = vision_transformer(2, of_vit, features=16, heads=2)
    for model, number in ((vit, 4), (rskip.adapt(models.resnet18(num_classes=2), of_resnet), 8)):
        recorder = SignalRecorder(residual_blocks(model))
        with recorder.recording():
            model(torch.randn(2, 3, 32, 32)).square().sum().backward()
        assert len(rows := recorder.rows()) == number and all(row["gradient"] > 0 for row in rows)


def test_squares_beyond_float32():
    """3xskip reaches 1e25 in a deep ResNet, and its gradient 1e-25."""
    model = preact_resnet(8, "1xskip").eval()
    block = residual_blocks(model)[0]
    recorder = SignalRecorder([block])
    x = torch.full((2, 16, 4, 4), 1e25, requires_grad=True)
    with recorder.recording():
        (block.connection(x, x) * 1e-25).sum().backward()
    expected = {"x_rms": 1e25, "f_rms": 1e25, "y_rms": 2e25, "gradient": 1e-25 * 16}
    assert recorder.values(block) == pytest.approx(expected, rel=1e-6)


def test_similarity_is_the_mean_cosine_of_two_positions():
    y, mask = torch.randn(4, 5, 3), torch.ones(4, 5, dtype=torch.bool)
    mask[1, :2], mask[2, 1:] = False, False  # three positions, and a single one
    y[3] = torch.arange(1.0, 6.0)[:, None] * y[3, 0]
    cosines = [
        torch.stack([F.cosine_similarity(row[i], row[j], dim=0) for i in range(n) for j in range(n) if i != j]).mean()
        for row, n in ((y[0], 5), (y[1, 2:], 3))
    ]
    torch.testing.assert_close(similarity(y, mask), torch.tensor([*cosines, 1.0]).double(), rtol=1e-6, atol=1e-7)
