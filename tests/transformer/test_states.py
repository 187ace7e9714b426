"""Connections that pass on more than x, or depend on their place, within a Transformer."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch

from rskip.connections import admin_profiling
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig
from tests.connections.every_connection import with_every_family
from tests.transformer.conftest import small

STREAMS = ["residual_dual", "b2t", "siamese", "hyper:streams=2", "mhc:streams=2,iterations=5",
           "mhc_lite:streams=2", "x0"]  # fmt: skip
HISTORY = ["denseformer", "attnres:blocks=3", "mudd"]
STATES = [*STREAMS, *HISTORY]


def attributes(model):
    """The tensors that are attributes of modules, without parameters and buffers."""
    return [id(each) for module in model.modules() for each in vars(module).values() if isinstance(each, torch.Tensor)]


@pytest.mark.parametrize("connection", [*STATES, "periln"])
def test_no_state_stays_on_the_modules(build, connection, source, prefix):
    model = build(connection)
    before = copy.deepcopy(model.state_dict())
    held = attributes(model)
    first = model(source, prefix)
    model(source[:1], prefix[:1])
    assert torch.equal(model(source, prefix), first)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert attributes(model) == held


@pytest.mark.parametrize("connection", STREAMS)
def test_layers_that_are_dropped_leave_a_state_of_the_same_form(build, connection, source, prefix):
    model = build(connection, encoder_layerdrop=0.5, decoder_layerdrop=0.5, encoder_layers=3).train()
    for seed in range(4):
        torch.manual_seed(seed)
        assert model(source, prefix).isfinite().all()


def test_each_stack_has_its_own_state(build, source, prefix):
    """A stack takes and gives one tensor, so families of any states go together."""
    model = build("hyper:streams=2", decoder_connection="siamese")
    full = model(source, prefix)
    state = model.start(model.encode(source))
    steps = torch.cat([model.step(tokens[:, None], state) for tokens in prefix.T], dim=1)
    torch.testing.assert_close(steps, full, rtol=0, atol=1e-9 * full.abs().max().item())


@pytest.mark.parametrize("connection", HISTORY)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_history_refuses_layerdrop(side, connection):
    with pytest.raises(SettingError) as error:
        TransformerConfig(9, 9, **{f"{side}_connection": connection, f"{side}_layerdrop": 0.1})
    expected = f"expected 0 with {connection}, whose connections read the outputs of all earlier layers"
    assert str(error.value) == f"{side}_layerdrop is 0.1: {expected}"
    other = {"encoder": "decoder", "decoder": "encoder"}[side]
    TransformerConfig(9, 9, **{f"{side}_connection": connection, f"{other}_layerdrop": 0.1})


GAINS = {  # of the weights of these names, over those of another connection, in 3 + 2 layers
    "deepnorm": (
        "1xskip+ln", {"encoder": 0.87 * (3**4 * 2) ** (-1 / 16), "decoder": (12 * 2) ** -0.25},
        ("v_proj.weight", "out_proj.weight", "fc1.weight", "fc2.weight"),
    ),
    "subln": (
        "prenorm+ln", {"encoder": math.sqrt(math.log(6) * math.log(6) / 3), "decoder": math.sqrt(math.log(6))},
        ("self_attn.v_proj.weight", "self_attn.out_proj.weight", "fc1.weight", "fc2.weight"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("connection", GAINS)
def test_a_familys_gain_is_in_the_models_initial_weights(build, connection):
    other, gains, scaled = GAINS[connection]
    layers = {"encoder_layers": 3, "decoder_layers": 2}
    model, parameters = build(connection, **layers), dict(build(other, **layers).named_parameters())
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            gain = gains[name.partition(".")[0]] if name.endswith(scaled) else 1
            torch.testing.assert_close(parameter, gain * parameters[name], rtol=1e-6, atol=0, msg=name)


TRAINED = with_every_family([
    "1xskip", "2xskip+ln", "layerscale+ln", "mixln:ratio=0.5", "laurel+ln", *STATES, "askip+ln",
    "askip+ln:form=recursive", "askip+ln:form=mixture", "normformer:res_scale=true", "orthogonal+ln", "frac:parts=2",
])  # fmt: skip


@pytest.mark.parametrize("connection", TRAINED)
def test_updates_are_the_same_from_a_file_of_model_and_optimiser(connection, source, prefix):
    config = small(connection, dropout=0.1)
    model, optimizer = beginning(config, source, prefix)
    updates(model, optimizer, source, prefix, range(2))
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    resumed, other = beginning(config, source, prefix, seed=1)
    for each, state in zip([resumed, other], torch.load(file), strict=True):
        each.load_state_dict(state)
    last = updates(model, optimizer, source, prefix, range(2, 4))
    assert updates(resumed, other, source, prefix, range(2, 4)) == last
    assert all(torch.equal(own, tensor) for own, tensor in zip(resumed.parameters(), model.parameters(), strict=True))


def beginning(config, source, prefix, *, seed=0, lr=1e-3):
    """A model as it starts, and its optimiser."""
    torch.manual_seed(seed)
    model = Transformer(config).train()
    if config.encoder_connection == "admin":
        with admin_profiling(model.encoder, source != 1), admin_profiling(model.decoder), torch.no_grad():
            model(source, prefix)
    return model, torch.optim.Adam(model.parameters(), lr=lr, fused=True)


def updates(model, optimizer, source, prefix, seeds):
    """The losses of updates, each with the random numbers of a seed."""
    losses = []
    for seed in seeds:
        torch.manual_seed(seed)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(source, prefix).flatten(0, 1), prefix.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
