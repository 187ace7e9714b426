"""Folders of GPT-2 and Llama compute what transformers computes; what rskip lacks is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rskip.checkpoint import read_language_model
from rskip.checkpoint.hugging_face import read_hugging_face
from rskip.settings.errors import SettingError

transformers = pytest.importorskip("transformers")

GPT2 = {"vocab_size": 29, "n_positions": 16, "n_embd": 16, "n_layer": 3, "n_head": 4}
LLAMA = {
    "vocab_size": 29, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip
ROPE = {"rope_theta": 50.0, "factor": 8.0}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 9}
FOLDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "gpt2 other": ("GPT2", {**GPT2, "n_inner": 20, "activation_function": "relu", "layer_norm_epsilon": 1e-3}),
    "gpt2 untied": ("GPT2", {**GPT2, "tie_word_embeddings": False}),
    "llama": ("Llama", LLAMA),
    "llama tied": ("Llama", {**LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 4, "rms_norm_eps": 1e-3}),
    "llama linear": ("Llama", {**LLAMA, "rope_parameters": {"rope_type": "linear", **ROPE}}),
    "llama 3": ("Llama", {**LLAMA, "rope_parameters": {**ROPE, **LLAMA3}}),
    "llama biases": ("Llama", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
}


def write(folder: Path, name: str, **save: Any) -> Any:
    """The model of transformers, in float64 and saved, whose every part matters."""
    kind, settings = FOLDERS[name]
    torch.manual_seed(0)
    head = {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}[kind]
    model = getattr(transformers, head)(getattr(transformers, f"{kind}Config")(**settings)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1) / 2, std=0.3)
    model.save_pretrained(folder, **save)
    return model


@pytest.fixture
def float64_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers computes RMS normalisations in float32 even in a float64 model; here in float64."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    monkeypatch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", forward)


@pytest.mark.parametrize("name", FOLDERS)
@torch.no_grad()
def test_logits_are_theirs(name: str, tmp_path: Path, float64_norms: None) -> None:
    theirs = write(tmp_path / "theirs", name)
    model = read_language_model(tmp_path / "theirs", as_stored=True)
    tokens = torch.randint(0, 29, (3, 14), generator=torch.Generator().manual_seed(1))
    expected = theirs(input_ids=tokens).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(model(tokens), expected, rtol=0, atol=1e-10)
    state = model.start(tokens[:, :5])
    steps = [model.step(each[:, None], state) for each in (tokens[:, 0], *tokens[:, 5:].T)]
    torch.testing.assert_close(torch.cat(steps, 1), expected[:, 4:], rtol=0, atol=1e-10)
    single = read_language_model(tmp_path / "theirs")(tokens)
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama tied"])
@torch.no_grad()
def test_shards_and_files_of_other_versions(name: str, tmp_path: Path) -> None:
    write(tmp_path / "shards", name, max_shard_size="8KB")
    write(tmp_path / "whole", name)
    assert len([*(tmp_path / "shards").glob("*.safetensors")]) > 2
    tokens = torch.randint(0, 29, (2, 9))
    expected = read_language_model(tmp_path / "whole")(tokens)
    assert torch.equal(read_language_model(tmp_path / "shards")(tokens), expected)
    path = tmp_path / "whole" / "model.safetensors"
    tensors = load_file(path)
    if name == "gpt2":  # the published file has no prefix, but the masks
        tensors = {each.removeprefix("transformer."): tensor for each, tensor in tensors.items()}
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 16, 16)
    else:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
        change(tmp_path / "whole", lambda config: config.pop("rope_parameters"), rope_theta=10000.0)
    save_file(tensors, path)
    assert torch.equal(read_language_model(tmp_path / "whole")(tokens), expected)


def change(folder: Path, edit: Callable[[dict[str, Any]], object] = lambda config: None, **values: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **values}
    edit(config)
    path.write_text(json.dumps(config))


REFUSED = {
    "gpt2": [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True: expected false"),
        ({"scale_attn_weights": False}, "scale_attn_weights is False: expected true"),
        ({"activation_function": "mish"}, "activation_function is 'mish': expected gelu, "),
        ({"n_head": 3}, "decoder_embed_dim is 16: expected a multiple of"),
        ({"n_layer": 4}, "decoder_layers is 4: expected 3, as the weights have"),
        ({"model_type": "bloom"}, "model_type is 'bloom': expected a language model: one of gpt2, llama"),
    ],
    "llama": [
        ({"rope_parameters": {"rope_type": "yarn", **ROPE}}, "rope_parameters.rope_type is 'yarn': expected one of de"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor is missing"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor is 0.5: expected"),
        ({"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling.rope_type is 'd"),
        ({"attention_bias": True}, "mlp_bias is False: expected true"),
        ({"sliding_window": 8}, "sliding_window is 8: expected null"),
        ({"head_dim": 8}, "head_dim is 8: expected null or 4"),
        ({"num_key_value_heads": 3}, "decoder_key_value_heads is 3: expected a divisor of"),
        ({"num_local_experts": 4}, "has a mixture of experts"),
    ],
}


@pytest.mark.parametrize(
    ("name", "values", "message"), [(name, *each) for name, refused in REFUSED.items() for each in refused]
)
def test_what_rskip_lacks_is_refused_by_name(name: str, values: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    change(tmp_path, **values)
    with pytest.raises(SettingError) as error:
        read_language_model(tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_language_model_given_for_translation(tmp_path: Path) -> None:
    write(tmp_path, "gpt2")
    with pytest.raises(SettingError, match=r"model_type is 'gpt2': expected a translation model: one of fsmt, m2m_100"):
        read_hugging_face(tmp_path)
