"""Language models of every family: token by token gives what a whole text gives, and no logits see later tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rskip.generation import SearchOptions, SpecialTokens, beam_search
from rskip.settings.errors import SettingError
from rskip.transformer import LanguageModel, LanguageModelConfig
from rskip.transformer.architectures import LANGUAGE_MODELS
from tests.transformer.conftest import CONNECTIONS, draw_parts

SIZES = {
    "decoder_embed_dim": 16, "decoder_ffn_embed_dim": 24, "decoder_attention_heads": 4, "decoder_layers": 2,
    "max_target_positions": 12,
}  # fmt: skip
GPT2 = {"decoder_learned_pos": True, "activation_fn": "gelu_accurate", "share_decoder_input_output_embed": True}
LLAMA = {
    "rotary_theta": 100.0, "gated_ffn": True, "activation_fn": "swish", "biases": False, "decoder_key_value_heads": 2,
    "norm_eps": 1e-6,
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "nanogpt": {**GPT2, "biases": False, "initial_std": 0.2},
    "llama": LLAMA,
    "llama3": {**LLAMA, "rotary_scaling": {"kind": "llama3", "factor": 8.0, "original_positions": 10}},
    "linear": {**LLAMA, "rotary_scaling": {"kind": "linear", "factor": 4.0}},
    "fairseq": {},
    "without positions": {"no_token_positional_embeddings": True, "layernorm_embedding": True},
    "values": {**LLAMA, "value_residual": "learned"},
}


def build(connection: str = "2rskip+ln", *, padding: int | None = None, **fields: Any) -> LanguageModel:
    torch.manual_seed(0)
    config = LanguageModelConfig.from_dict({**SIZES, "decoder_connection": connection, **fields})
    return draw_parts(LanguageModel(config, 23, padding))


def text(rows: int = 3, length: int = 8) -> torch.Tensor:
    return torch.randint(4, 23, (rows, length), generator=torch.Generator().manual_seed(1))


def stepwise(model: LanguageModel, tokens: torch.Tensor, prompt: int) -> torch.Tensor:
    """The logits after a prompt of this length and after each further token."""
    state = model.start(tokens[:, :prompt])
    first = [model.step(torch.zeros_like(tokens[:, :1]), state)] if prompt else []
    return torch.cat([*first, *(model.step(each[:, None], state) for each in tokens[:, prompt:].T)], dim=1)


@pytest.mark.parametrize("connection", CONNECTIONS)
@pytest.mark.parametrize("shape", ["gpt2", "llama"])
def test_every_connection(connection: str, shape: str) -> None:
    check(build(connection, **SHAPES[shape]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("padding", [None, 1])
def test_every_shape(shape: str, padding: int | None) -> None:
    check(build(padding=padding, **SHAPES[shape]))


@torch.no_grad()
def check(model: LanguageModel) -> None:
    tokens = text()
    full = model(tokens)
    close = {"rtol": 0, "atol": 1e-9 * full.abs().max().item()}
    for prompt in (0, 3):
        torch.testing.assert_close(stepwise(model, tokens, prompt), full[:, max(prompt - 1, 0) :], **close)
    changed = tokens.clone()
    changed[:, 5:] = 22 - tokens[:, 5:] % 7
    other = model(changed)
    assert torch.equal(other[:, :5], full[:, :5])
    assert not torch.allclose(other[:, 5:], full[:, 5:])


@pytest.mark.parametrize("shape", ["gpt2", "llama", "fairseq"])
@torch.no_grad()
def test_padding_has_no_effect(shape: str) -> None:
    model, tokens = build(padding=1, **SHAPES[shape]), text()
    full = model(tokens)
    left, right = torch.ones(3, 10, dtype=torch.long), torch.ones(3, 10, dtype=torch.long)
    left[:, 2:] = right[:, :8] = tokens
    torch.testing.assert_close(model(left)[:, 2:], full, rtol=0, atol=1e-10)
    torch.testing.assert_close(model(right)[:, :8], full, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", ["gpt2", "llama"])
@torch.no_grad()
def test_prompts_of_several_lengths_in_beams(shape: str) -> None:
    """Beams are reordered and multiplied, and a row leaves, while each goes on from its own prompt."""
    model, tokens = build(padding=1, **SHAPES[shape]), text()
    lengths = [5, 2, 4]
    prompts = torch.ones(3, 5, dtype=torch.long)
    for row, length in enumerate(lengths):
        prompts[row, 5 - length :] = tokens[row, :length]
    state = model.start(prompts)
    torch.testing.assert_close(model.step(tokens[:, :1], state)[1], model(tokens[1:2, :2])[0, 1:], rtol=0, atol=1e-9)
    model.reorder(state, torch.zeros(3, 2, dtype=torch.long))
    first = torch.tensor([[7, 8], [9, 10], [11, 12]])
    model.step(first, state)
    model.reorder(state, torch.tensor([[1, 0, 1], [0, 0, 1]]), torch.tensor([2, 1]))
    logits = model.step(torch.tensor([[4, 5, 6], [4, 5, 6]]), state)
    for place, (row, parents) in enumerate([(2, [12, 11, 12]), (1, [9, 9, 10])]):
        for beam, parent in enumerate(parents):
            whole = torch.tensor([*tokens[row, : lengths[row]].tolist(), parent, 4 + beam])
            torch.testing.assert_close(logits[place, beam], model(whole[None])[0, -1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("sampling", [False, True])
@torch.no_grad()
def test_a_search_continues_the_prompt(sampling: bool) -> None:
    model, prompts = build(**LLAMA), text(2, 4)
    options = SearchOptions(beam=1, max_length_b=5, sampling=sampling, top_k=int(sampling))
    special = SpecialTokens(padding=0, end=1, unknown=2)
    found = beam_search(model, prompts, options, source_lengths=torch.tensor([4, 4]), special=special)
    for prompt, (hypothesis,) in zip(prompts, found, strict=True):
        tokens = prompt.tolist()
        for _ in range(5):
            logits = model(torch.tensor([tokens]))[0, -1]
            logits[[0, 1] if len(tokens) == 4 else [0]] = -torch.inf  # the minimum length is 1
            tokens.append(int(logits.argmax()))
            if tokens[-1] == 1:
                break
        assert hypothesis.tokens.tolist() == [*tokens[4:], *([] if tokens[-1] == 1 else [1])]


def test_presets() -> None:
    with torch.device("meta"):
        counts = {
            name: sum(each.numel() for each in LanguageModel(LanguageModelConfig(**fields), words).parameters())
            for name, fields, words in (
                ("gpt2", LANGUAGE_MODELS["gpt2"], 50257), ("nanogpt", LANGUAGE_MODELS["nanogpt"], 65)
            )
        }  # fmt: skip
    assert counts == {"gpt2": 124_439_808, "nanogpt": 804_096}


def test_initial_values_of_nanogpt() -> None:
    torch.manual_seed(0)
    model = LanguageModel(LanguageModelConfig(**LANGUAGE_MODELS["nanogpt"]), 65)
    for name, parameter in model.named_parameters():
        assert not name.endswith("bias")
        if "norm" in name:
            assert torch.equal(parameter, torch.ones(128))
        else:
            expected = 0.02 / 8**0.5 if name.endswith(("out_proj.weight", "fc2.weight")) else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name
    assert model.decoder.output_projection.weight is model.decoder.embed_tokens.weight


def test_gates_and_gains_start_as_the_model_does() -> None:
    fields = {**SIZES, "decoder_embed_dim": 64, "initial_std": 0.02}
    model = LanguageModel(LanguageModelConfig(**fields, decoder_connection="sas"), 23)
    gate = model.decoder.layers[0].get_submodule("ffn_connection.alpha_gate.hidden")
    assert gate.weight.std().item() == pytest.approx(0.02, rel=0.05)
    model = LanguageModel(LanguageModelConfig(**fields, decoder_connection="deepnorm"), 23)
    projection = model.decoder.layers[1].get_submodule("self_attn.v_proj")
    assert projection.weight.std().item() == pytest.approx(0.02 * 16**-0.25, rel=0.05)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"decoder_connection": "prenorm+bn"}, "decoder_connection is 'prenorm+bn': expected prenorm with ln or rms"),
        ({"decoder_connection": "1xskip+bn"}, "decoder_connection is '1xskip+bn': expected ln or rms: "),
        ({"decoder_attention_heads": 3}, "decoder_embed_dim is 16: expected a multiple of the number of the decoder's"),
        ({"decoder_key_value_heads": 3}, "decoder_key_value_heads is 3: expected a divisor of decoder_attention_heads"),
        ({"rotary_theta": 1e4, "decoder_learned_pos": True}, "decoder_learned_pos is True: expected false with rotary"),
        ({"rotary_theta": 1e4, "decoder_attention_heads": 16}, "decoder_embed_dim is 16: expected an even number of"),
        ({"rotary_theta": -1.0}, "rotary_theta is -1.0: expected a number above 0"),
        ({"rotary_scaling": {"kind": "linear", "factor": 2.0}}, "rotary_scaling needs rotary positions; set rotary_"),
        ({"rotary_theta": 1e4, "rotary_scaling": {"kind": "yarn", "factor": 2.0}}, "rotary_scaling.kind is 'yarn': ex"),
        ({"encoder_layers": 2}, "unknown key encoder_layers; did you mean decoder_layers?"),
    ],
)  # fmt: skip
def test_wrong_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        LanguageModelConfig.from_dict({**SIZES, **fields})
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_a_text_longer_than_the_learned_positions() -> None:
    model = build(**GPT2)
    assert model.max_positions == 12 and build(**LLAMA).max_positions is None
    with pytest.raises(ValueError, match="13 tokens, but this model has only 12 learned positions"):
        model.start(text(1, 13))
