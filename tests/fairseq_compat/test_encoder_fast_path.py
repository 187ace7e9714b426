"""Patch of the stock encoder layer: `Mask Type should be defined`, skipped residuals, dead parameters."""

from __future__ import annotations

import pytest

LAYER = """
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

class Halved(TransformerEncoderLayerBase):
    def residual_connection(self, x, residual):
        return 0.5 * residual + x

config = TransformerConfig()
config.encoder.embed_dim, config.encoder.ffn_embed_dim, config.encoder.attention_heads = 8, 16, 2
config.dropout = 0.0
torch.manual_seed(1)
trained, loaded = Halved(config), Halved(config)
loaded.load_state_dict(trained.state_dict())

x = torch.randn(3, 3, 8)
with torch.no_grad():
    # batch first, no mask: the one case that the fast path gets through, with the plain residual
    print("overridden residual holds in evaluation:", torch.equal(trained.train()(x, None), loaded.eval()(x, None)))

trained.train()(torch.randn(3, 2, 8), None).sum().backward()
parameters = list(trained.parameters())
print("without gradient:", sum(p.requires_grad and p.grad is None for p in parameters), "of", len(parameters))

with torch.no_grad():
    loaded.eval()(torch.randn(3, 2, 8), torch.tensor([[False, False, True], [False, False, False]]))
print("padded batch: done")
"""


def test_layer_without_the_patch(python):
    process = python(LAYER, without="encoder-fast-path")
    assert process.stdout == "overridden residual holds in evaluation: False\nwithout gradient: 8 of 24\n"
    assert process.returncode == 1
    assert "Mask Type should be defined" in process.stderr


def test_layer(python):
    process = python(LAYER)
    assert process.stdout == (
        "overridden residual holds in evaluation: True\nwithout gradient: 0 of 24\npadded batch: done\n"
    ), process.stderr


WRAPPED = """
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

torch.distributed.init_process_group("gloo", init_method="file://" + {file!r}, rank=0, world_size=1)
config = TransformerConfig()
config.encoder.embed_dim, config.encoder.ffn_embed_dim, config.encoder.attention_heads = 8, 16, 2
model = torch.nn.parallel.DistributedDataParallel(TransformerEncoderLayerBase(config))
for _ in range(2):
    model(torch.randn(3, 2, 8), None).sum().backward()
print("done")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("without", ["", "encoder-fast-path"])
def test_several_processes_miss_gradients_without_the_patch(python, tmp_path, without):
    process = python(WRAPPED.format(file=str(tmp_path / "rendezvous")), without=without)
    if without:
        assert process.returncode == 1
        assert "Expected to have finished reduction in the prior iteration" in process.stderr
    else:
        assert process.stdout == "done\n", process.stderr
