"""Every parameter gets a gradient, and random choices in training have the requested probabilities."""

from __future__ import annotations

import pytest
import torch

from rskip.transformer.stack import layers_to_run


def test_every_parameter_gets_a_finite_gradient(build, connection, source, prefix, gradients):
    model = build(connection, layernorm_embedding=True, encoder_learned_pos=True, decoder_learned_pos=True).train()
    for name, gradient in gradients(model, source, prefix).items():
        assert gradient is not None and gradient.isfinite().all(), name
        if not name.endswith(("k_proj.bias", "key_norm.bias")):  # softmax is blind to a shift of all its scores
            assert gradient.abs().max() > 1e-12, name


def test_checkpointed_activations_give_the_same_gradients(build, source, prefix, gradients):
    plain = build("2rskip+ln", dropout=0.3).train()
    checkpointed = build("2rskip+ln", dropout=0.3, checkpoint_activations=True).train()
    expected = gradients(plain, source, prefix)
    for name, gradient in gradients(checkpointed, source, prefix).items():
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-12)


def test_checkpointed_activations_are_not_kept(build, source, prefix):
    def saved_bytes(model):
        total = 0

        def count(tensor):
            nonlocal total
            total += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            model(source, prefix)
        return total

    plain = saved_bytes(build(encoder_layers=6, decoder_layers=6).train())
    assert saved_bytes(build(encoder_layers=6, decoder_layers=6, checkpoint_activations=True).train()) < plain / 2


def test_layerdrop_leaves_out_its_share_of_layers_in_training_only():
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Identity() for _ in range(10))
    run = [sum(1 for _ in layers_to_run(layers, 0.3, training=True)) for _ in range(500)]
    assert sum(run) / 5000 == pytest.approx(0.7, abs=0.03)
    assert sum(1 for _ in layers_to_run(layers, 0.3, training=False)) == 10
