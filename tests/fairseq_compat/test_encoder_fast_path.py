"""Patches of the stock encoder layer: `Mask Type should be defined`, skipped residuals, dead parameters."""

from __future__ import annotations

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
"""

# batch first, no mask: the one case that the fast path gets through, with the plain residual
EVALUATE = (
    LAYER
    + """
x = torch.randn(3, 3, 8)
with torch.no_grad():
    print(torch.equal(trained.train()(x, None), loaded.eval()(x, None)))
"""
)

PADDED = (
    LAYER
    + """
with torch.no_grad():
    loaded.eval()(torch.randn(3, 2, 8), torch.tensor([[False, False, True], [False, False, False]]))
print("done")
"""
)

GRADIENTS = (
    LAYER
    + """
trained.train()(torch.randn(3, 2, 8), None).sum().backward()
print(sum(p.requires_grad and p.grad is None for p in trained.parameters()), len(list(trained.parameters())))
"""
)


def test_overridden_residual_is_skipped_in_evaluation_without_the_patch(python):
    assert python(EVALUATE, without="encoder-fast-path").stdout == "False\n"


def test_overridden_residual_holds_in_evaluation(python):
    assert python(EVALUATE).stdout == "True\n"


def test_padded_batch_crashes_without_the_patch(python):
    process = python(PADDED, without="encoder-fast-path")
    assert process.returncode == 1
    assert "Mask Type should be defined" in process.stderr


def test_padded_batch_works(python):
    assert python(PADDED).stdout == "done\n"


def test_eight_parameters_get_no_gradient_without_the_patch(python):
    assert python(GRADIENTS, without="encoder-fast-path").stdout == "8 24\n"


def test_parameters_without_gradient_are_frozen_and_still_there(python):
    assert python(GRADIENTS).stdout == "0 24\n"
