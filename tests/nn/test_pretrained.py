"""Adapted Hugging Face models: cache, checkpointing, hidden states, saving and loading, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import list_connections
from rskip.nn import adapt, adaptation, from_pretrained
from rskip.settings.errors import SettingError

transformers = pytest.importorskip("transformers", reason="transformers is an optional library")
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:FutureWarning")

TOKENS = torch.randint(3, 61, (2, 7), generator=torch.Generator().manual_seed(0))
SPECS = ("2rskip+ln", "mhc", "attnres")  # one tensor of x's shape, one of streams, and several
SIZES = {
    "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "is_decoder": True, "attn_pdrop": 0, "embd_pdrop": 0,
    "resid_pdrop": 0, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0,
}  # fmt: skip


def build(module: str, **settings: Any) -> Any:
    """A small language model."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(module, **{**SIZES, **settings})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture(params=["gpt2", "llama", "bert"])
def module(request) -> str:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return request.param


def noisy(model: Any) -> Any:
    """The model with parameters that are not initial values."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def test_decoding_with_a_cache_equals_decoding_without(module):
    lived = 0
    for family in list_connections():
        try:
            model = noisy(adapt(build(module), family.name if family.factor is None else f"2{family.name}"))
        except SettingError:
            continue  # needs something that no model of the library supplies
        lived += 1
        full = model(torch.cat([TOKENS, TOKENS], 1)).logits
        cache = model(TOKENS, use_cache=True).past_key_values
        torch.testing.assert_close(
            model(TOKENS, past_key_values=cache, use_cache=True).logits, full[:, 7:], rtol=1e-4, atol=1e-5
        )
        found = [model.generate(TOKENS, max_new_tokens=4, num_beams=2, use_cache=cached) for cached in (True, False)]
        assert torch.equal(*found), family.name
    assert lived > 15


def test_activation_checkpoints_give_the_same_gradients_or_are_refused(module):
    for spec in SPECS:
        model = noisy(adapt(build(module), spec)).train()
        expected = gradients(model)
        for reentrant in (False, True):
            kept = {"use_reentrant": reentrant}
            if spec == "attnres" and reentrant:
                with pytest.raises(SettingError, match="attnres loses gradients in reentrant checkpoints"):
                    model.gradient_checkpointing_enable(kept)
                continue
            model.gradient_checkpointing_enable(kept)
            for name, gradient in gradients(model).items():
                torch.testing.assert_close(gradient, expected[name])
            model.gradient_checkpointing_disable()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_may_be_on_before_adapt(reentrant):
    model = build("bert")  # its blocks' norms save tensors, for which a checkpoint runs the block again
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant:
        with pytest.raises(SettingError, match="siamese loses gradients in reentrant checkpoints"):
            adapt(model, "siamese")
    assert adaptation(adapt(model, "2rskip+ln")).own == "1xskip+ln"


def gradients(model: Any) -> dict[str, Tensor]:
    model.zero_grad()
    model(TOKENS, labels=TOKENS).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def test_hidden_states_are_what_the_stack_would_give_if_it_ended_there(module):
    stock = {"gpt2": "prenorm+ln", "llama": "prenorm+rms", "bert": "1xskip+ln"}[module]
    model = build(module, attn_implementation="eager")
    expected = model(TOKENS, output_hidden_states=True, output_attentions=True)
    found = adapt(copy.deepcopy(model), stock)(TOKENS, output_hidden_states=True, output_attentions=True)
    for name in ("hidden_states", "attentions"):
        for mine, theirs in zip(found[name], expected[name], strict=True):
            assert torch.equal(mine, theirs)
    for spec in ("hyper", "attnres", "siamese"):
        adapted = adapt(copy.deepcopy(model), spec)
        states = adapted(TOKENS, output_hidden_states=True).hidden_states
        assert [state.shape for state in states] == [(2, 7, 24)] * 4
        with pytest.raises(SettingError, match="expected return_dict=True, since this connection's hidden states"):
            adapted.base_model(TOKENS, output_hidden_states=True, return_dict=False)
        assert adapted.base_model(TOKENS, return_dict=False)[0].shape == (2, 7, 24)


@pytest.mark.parametrize("name", ["ConvNextModel", "ConvNextBackbone", "MaskFormerSwinModel"])
def test_the_outputs_of_stages_are_hidden_states_too(name):
    swin = {"image_size": 32, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
    sizes = swin if "Swin" in name else {"hidden_sizes": [8, 16], "depths": [2, 2], "num_stages": 2}
    kind = getattr(transformers, name, None) or transformers.models.maskformer.MaskFormerSwinModel
    model = kind(kind.config_class(**sizes)).eval()
    images = torch.randn(2, 3, 32, 32)
    expected = model(images, output_hidden_states=True).hidden_states
    for spec in ("hyper", "attnres"):
        found = adapt(copy.deepcopy(model), spec)(images, output_hidden_states=True).hidden_states
        assert shapes(found) == shapes(expected)


def shapes(states: Any) -> Any:
    return states.shape if isinstance(states, Tensor) else [*map(shapes, states)]


def test_a_folder_gives_the_same_model_and_the_library_refuses_it(module, tmp_path):
    for spec in SPECS:
        folder = tmp_path / spec
        model = noisy(adapt(build(module), spec))
        model.resize_token_embeddings(64)
        model.tie_weights()
        expected = model(TOKENS).logits
        model.save_pretrained(folder)
        for loaded in (
            type(model).from_pretrained(folder),
            from_pretrained(type(build(module)), folder),
            from_pretrained(transformers.AutoModelForCausalLM, folder),
        ):
            assert torch.equal(loaded(TOKENS).logits, expected)
            assert adaptation(loaded).spec == loaded.config.rskip_connection == spec
        half = from_pretrained(transformers.AutoModel, folder, dtype=torch.bfloat16)
        assert half(TOKENS).last_hidden_state.dtype == torch.bfloat16
        if not adaptation(model).dropped:
            continue  # the library then warns of the connection's tensors
        for kind in (type(build(module)), transformers.AutoModelForCausalLM, transformers.AutoModel):
            with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
                kind.from_pretrained(folder)
        with pytest.raises(RuntimeError, match="size mismatch"):
            build(module, vocab_size=64).load_state_dict(model.state_dict(), strict=False)


def test_a_stock_folder_is_adapted_after_loading_and_refused_by_an_adapted_class(module, tmp_path):
    model = build(module)
    model.save_pretrained(tmp_path)
    adapted = adapt(type(model).from_pretrained(tmp_path), "2rskip+ln")
    assert torch.equal(adapted(TOKENS).logits, adapt(model, "2rskip+ln")(TOKENS).logits)
    with pytest.raises(SettingError, match="has no rskip_connection in its config; load it with its library's class"):
        type(adapted).from_pretrained(tmp_path)


def test_an_edited_config_is_refused(module, tmp_path):
    adapt(build(module), "2rskip+ln").save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace("2rskip+ln", "2xskip+ln"))
    with pytest.raises(SettingError, match=r"2xskip\+ln.*: expected 2rskip\+ln, as in the state"):
        from_pretrained(transformers.AutoModelForCausalLM, tmp_path)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    with pytest.raises(SettingError, match=r"expected 2xskip\+ln, which the model's config names"):
        adapt(model, "2rskip+ln")


def test_changed_models_are_refused(module):
    quantised = build(module)
    quantised.extra = nn.Module()
    quantised.extra.register_buffer("qweight", torch.zeros(2, 2, dtype=torch.int32))
    with pytest.raises(SettingError, match="is quantised in 0.extra; adapt and train it in floating point"):
        adapt(nn.Sequential(quantised), "2rskip+ln")
    wrapped = build(module)
    wrapped.adapter = type("LoraLayer", (nn.Module,), {"__module__": "peft.tuners.lora"})()
    with pytest.raises(SettingError, match="has peft adapters"):
        adapt(wrapped, "2rskip+ln")
    placed = build(module)
    block = next(each for each in placed.modules() if type(each).__name__ in BLOCKS)
    block.forward = block.forward
    with pytest.raises(SettingError, match="has a forward of its own"):
        adapt(placed, "2rskip+ln")
    model = adapt(build(module), "2rskip+ln")
    assert type(model).__name__ == model.__class__.__name__ in repr(model)
    with pytest.raises(SettingError, match="that are already adapted"):
        adapt(nn.Sequential(model), "2rskip+ln")


BLOCKS = ("GPT2Block", "LlamaDecoderLayer", "BertLayer")


def test_an_encoder_and_a_decoder_are_two_stacks(tmp_path: Path):
    encoder = transformers.BertModel(transformers.BertConfig(**{**SIZES, "is_decoder": False}))
    decoder = build("gpt2", add_cross_attention=True)
    torch.manual_seed(0)
    model = transformers.EncoderDecoderModel(encoder=encoder, decoder=decoder).eval()
    adapt(model, "2rskip+ln")
    assert adaptation(model).blocks == {"BertLayer": 3, "GPT2Block": 3}
    expected = model(TOKENS, decoder_input_ids=TOKENS).logits
    model.save_pretrained(tmp_path)
    assert torch.equal(type(model).from_pretrained(tmp_path)(TOKENS, decoder_input_ids=TOKENS).logits, expected)


SEQUENCES = {
    "vocab_size": 61, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "pad_token_id": 0, "eos_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["bart", "m2m_100", "plbart"])
def test_encoder_decoders_are_loaded(kind: str, tmp_path: Path):
    config = transformers.AutoConfig.for_model(kind, **SEQUENCES)
    model = noisy(adapt(transformers.AutoModelForSeq2SeqLM.from_config(config).eval(), "2rskip+ln"))
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(transformers.AutoModelForSeq2SeqLM, tmp_path)
    expected = model(TOKENS, decoder_input_ids=TOKENS).logits
    assert torch.equal(loaded(TOKENS, decoder_input_ids=TOKENS).logits, expected)


def test_one_stack_alone_is_refused_where_its_factors_depend_on_both(tmp_path: Path):
    sizes = {"vocab_size": 61, "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 2}
    for spec in ("2rskip+ln", "askip+ln"):
        model = adapt(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).eval(), spec)
        model.save_pretrained(tmp_path / spec)
    found = from_pretrained(transformers.T5EncoderModel, tmp_path / "2rskip+ln")
    assert len(found.encoder.block) == 2
    with pytest.raises(SettingError, match="depends on the layers of both"):
        from_pretrained(transformers.T5EncoderModel, tmp_path / "askip+ln")


class Bare(transformers.GPT2Model):
    """It returns a tensor."""

    def forward(self, input_ids):
        return super().forward(input_ids).last_hidden_state


def test_a_model_that_returns_a_tensor_takes_streams():
    torch.manual_seed(0)
    assert adapt(Bare(build("gpt2").config).eval(), "mhc")(TOKENS).shape == (*TOKENS.shape, 24)


@pytest.mark.parametrize("kind", ["m2m_100", "wav2vec2"])
def test_layerdrop_is_refused_if_each_block_must_run(kind: str):
    wav2vec = {
        "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 40, "conv_dim": [8],
        "conv_stride": [40], "conv_kernel": [40], "num_conv_pos_embedding_groups": 2, "num_conv_pos_embeddings": 3,
    }  # fmt: skip
    sizes = SEQUENCES | {"encoder_layerdrop": 0, "decoder_layerdrop": 0.1} if kind == "m2m_100" else wav2vec
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **sizes))
    names = list(model.state_dict())
    for spec in ("mhc", "attnres"):
        with pytest.raises(SettingError, match=r"leaves out random blocks in training, with layerdrop 0\.1; set it to"):
            adapt(model, spec)
    assert list(model.state_dict()) == names
    adapt(copy.deepcopy(model), "2rskip+ln")
    without = {key: 0 for key in sizes | {"layerdrop": 0} if key.endswith("layerdrop")}
    adapt(transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **sizes | without)), "mhc")
    if kind == "m2m_100":
        adapt(model, "mhc", blocks="encoder.layers")


def test_the_same_blocks_are_adapted_in_a_loaded_model(tmp_path: Path):
    config = transformers.T5Config(vocab_size=61, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=2)
    model = adapt(transformers.T5ForConditionalGeneration(config).eval(), "mhc+rms", blocks="decoder.block")
    model.save_pretrained(tmp_path / "model")
    loaded = from_pretrained(transformers.AutoModelForSeq2SeqLM, tmp_path / "model")
    expected = model(TOKENS, decoder_input_ids=TOKENS).logits
    assert torch.equal(loaded(TOKENS, decoder_input_ids=TOKENS).logits, expected)
    model.decoder.save_pretrained(tmp_path / "decoder")
    example = {"input_ids": TOKENS, "encoder_hidden_states": torch.ones(2, 3, 24)}
    decoder = type(model.decoder).from_pretrained(tmp_path / "decoder", example=example).eval()
    assert torch.equal(decoder(**example)[0], model.decoder(**example)[0])
    written = tmp_path / "model" / "config.json"
    written.write_text(written.read_text().replace('"decoder.block.1"', '"encoder.block.1"'))
    with pytest.raises(SettingError, match=r"connections in the same blocks: decoder\.block\.1"):
        from_pretrained(transformers.T5ForConditionalGeneration, tmp_path / "model")


class Scaled(transformers.GPT2LMHeadModel):
    def forward(self, input_ids: Tensor, factor: Tensor) -> Any:
        return super().forward(inputs_embeds=self.transformer.wte(input_ids) * factor)


def test_a_loaded_model_takes_an_example(tmp_path: Path):
    example = (TOKENS, torch.ones(24))
    model = adapt(Scaled(build("gpt2").config).eval(), "mhc", example=example)
    model.save_pretrained(tmp_path)
    with pytest.raises(SettingError, match="pass example="):
        from_pretrained(Scaled, tmp_path)
    assert torch.equal(from_pretrained(Scaled, tmp_path, example=example)(*example).logits, model(*example).logits)


@pytest.mark.parametrize("folder", ["missing", "/tmp/no/such", "./a/b", "a/b/c", Path("missing")])
def test_a_missing_folder_is_told_without_asking_the_hub(folder):
    with pytest.raises(SettingError, match="folder is .*: expected an existing folder, or a name on the Hub such as"):
        from_pretrained(transformers.AutoModelForCausalLM, folder)
