"""The weights of a model's file fit its settings, or it is refused with the reason."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rskip.checkpoint import Checkpoint, write_model
from rskip.cpu import PRECISIONS, find_library
from rskip.cpu.weights import to_bfloat16
from rskip.generation import SearchOptions, SpecialTokens
from rskip.kernel_forms import NoKernelForm
from rskip.settings.errors import SettingError
from tests.cpu.model_files import ONE_DICTIONARY, opened, saved

pytestmark = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"connection": "normformer"}, "the connection 'normformer' needs PyTorch"),
        ({"connection": "hyper"}, "the connection 'hyper'"),
        ({"connection": "wskip+ln:rate=2"}, "the connection 'wskip"),
        ({"value_residual": "fixed"}, "value_residual=fixed"),
    ],
    ids=str,
)
def test_what_only_pytorch_can_run_says_why(tmp_path, settings, reason):
    with pytest.raises(NoKernelForm, match=reason):
        opened(saved(tmp_path, **settings)[0])


def with_changed_config(folder, file, changes):
    config = json.loads((folder / "config.json").read_text())
    config["model"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    return opened(file)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"encoder_attention_heads": -8}, "encoder_attention_heads is -8"),
        ({"encoder_layers": "2"}, "encoder_layers is '2'"),
        ({"no_scale_embedding": "false"}, "no_scale_embedding is 'false'"),
        ({"encoder_connection": 7}, "encoder_connection is 7"),
        ({"encoder_connection": "1xskip+bn"}, "encoder_connection is '1xskip.bn'"),
        ({"decoder_connection": "sas:gate=half"}, "decoder_connection is 'sas:gate=half'"),
        ({"decoder_layers": 3}, "lack decoder.layers.2.* get the weights and config.json again"),
        ({"decoder_layers": 1}, "have decoder.layers.1.*, which the settings lack"),
        ({"encoder_attention_heads": 5}, "encoder_embed_dim is 32: expected a multiple"),
        ({"encoder_ffn_embed_dim": 47}, r"in the shape \(48, 32\), .* describe \(47, 32\)"),
        ({"output_bias": True}, "lack decoder.output_projection.bias"),
        ({"share_all_embeddings": True}, "needs one joint dictionary"),
        ({"share_decoder_input_output_embed": True}, "differ, but the settings say"),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit(tmp_path, changes, reason):
    file, _ = saved(tmp_path)
    with pytest.raises(SettingError, match=reason):
        with_changed_config(tmp_path, file, changes)


def test_other_models_and_vocabularies_are_refused(tmp_path):
    file, checkpoint = saved(tmp_path)
    with pytest.raises(SettingError, match="the source one has 41 tokens"):
        opened(file, source_words=41)
    with pytest.raises(NoKernelForm, match="the connection 'mine' needs PyTorch"):
        with_changed_config(tmp_path, file, {"encoder_connection": "mine"})
    config = {**checkpoint.config, "task": "multilingual_translation", "pairs": ["en-de"]}
    model = {f"models.en-de.{name}": value for name, value in checkpoint.model.items()}
    write_model(tmp_path, Checkpoint(model=model, config=config))
    with pytest.raises(NoKernelForm, match="fairseq's own models"):
        opened(file)


def test_weights_that_are_not_finite(tmp_path):
    """Also infinities whose sum is NaN. Finite values whose sum overflows are accepted."""

    def with_weights(*values):
        def change(model):
            model.encoder.layers[0].fc1.weight[0, : len(values)] = torch.tensor(values)

        return saved(tmp_path, change=change)[0]

    for values in ([math.nan], [math.inf], [-math.inf, math.inf]):
        file = with_weights(*values)
        for precision in PRECISIONS:
            with pytest.raises(SettingError, match="encoder.layers.0.fc1.weight has values that are infinite or not"):
                opened(file, precision)
    opened(with_weights(3e38, 3e38))


def test_weights_of_other_types(tmp_path):
    file, _ = saved(tmp_path)
    with safe_open(file, framework="pt") as content:
        tensors, about = {name: content.get_tensor(name) for name in content.keys()}, content.metadata()  # noqa: SIM118
    name = "encoder.layers.0.fc1.bias"
    save_file({**tensors, name: tensors[name].long()}, file, about)
    with pytest.raises(SettingError, match=f"{name} is stored in I64: expected floats"):
        opened(file)


def test_shared_embeddings_may_be_stored_twice(tmp_path):
    file, checkpoint = saved(tmp_path, share_all_embeddings=True, words=ONE_DICTIONARY)
    checkpoint.model = {name: value.clone() for name, value in checkpoint.model.items()}
    write_model(tmp_path / "twice", checkpoint)
    twice = opened(tmp_path / "twice/model.safetensors", source_words=90)
    once = opened(file, source_words=90)
    found, expected = (
        model.search([[5, 17, 2]], SearchOptions(max_length_b=9), special=SpecialTokens()) for model in (twice, once)
    )
    assert found[0][0].tokens.tolist() == expected[0][0].tokens.tolist()
    assert found[0][0].score == expected[0][0].score


def test_bfloat16_is_rounded_as_in_pytorch():
    values = torch.cat([torch.randn(1000), torch.tensor([math.inf, -math.inf, 0.0, -0.0, 1e-40, 3.3e38, math.nan])])
    rounded = torch.from_numpy(to_bfloat16(values.numpy()).view("int16")).view(torch.bfloat16)
    assert torch.equal(rounded.nan_to_num(7), values.bfloat16().nan_to_num(7))
