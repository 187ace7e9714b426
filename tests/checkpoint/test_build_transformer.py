"""The Transformer that a checkpoint holds."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from rskip.checkpoint import Checkpoint, build_transformer, read_checkpoint, to_stock, write_checkpoint
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig
from tests.checkpoint.conftest import both

SIZES = both(embed_dim=16, ffn_embed_dim=24, attention_heads=4, layers=2)
SOURCE = torch.tensor([[7, 8, 9, 10, 2], [11, 5, 2, 1, 1]])
PREFIX = torch.tensor([[2, 6, 7, 8], [2, 9, 4, 11]])


def checkpoint_of(model: dict[str, Tensor], settings: dict[str, Any], **config: Any) -> Checkpoint:
    languages = {"source_lang": "en", "target_lang": "de"}
    known = {"arch": "transformer", "task": "translation", "model": settings} | languages
    return Checkpoint(model=model, config=known | config)


def random_model(**settings: Any) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(TransformerConfig(source_vocabulary=12, target_vocabulary=14, **SIZES | settings)).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def stock_checkpoint(connection: str = "1xskip+ln", **settings: Any) -> tuple[Transformer, Checkpoint]:
    """A model of ours, and a checkpoint of the stock Transformer that is the same."""
    model = random_model(encoder_connection=connection, decoder_connection=connection)
    normalize = {f"{side}_normalize_before": connection == "prenorm+ln" for side in ("encoder", "decoder")}
    return model, checkpoint_of(to_stock(model.state_dict(), connection=connection), SIZES | normalize | settings)


def build(checkpoint: Checkpoint) -> Transformer:
    return build_transformer(checkpoint, source_vocabulary=12, target_vocabulary=14)


def assert_same(built: Transformer, model: Transformer) -> None:
    with torch.no_grad():
        assert torch.equal(built(SOURCE, PREFIX), model(SOURCE, PREFIX))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize(
    "settings",
    [
        {"connection": "2rskip+ln"},
        {"connection": "1xskip+ln", "encoder_connection": "prenorm+ln", "decoder_connection": None},
        {"connection": None, "encoder_connection": "sas", "decoder_connection": "2xskip"},
        {"connection": "normformer", "value_residual": "fixed"},
    ],
)
def test_our_checkpoints_of_both_formats(settings: dict[str, str], suffix: str, tmp_path: Path) -> None:
    encoder, decoder = (settings.get(f"{side}_connection") or settings["connection"] for side in ("encoder", "decoder"))
    values = settings.get("value_residual", "none")
    model = random_model(encoder_connection=encoder, decoder_connection=decoder, value_residual=values)
    write_checkpoint(tmp_path / f"model{suffix}", checkpoint_of(model.state_dict(), SIZES | settings))
    assert_same(build(read_checkpoint(tmp_path / f"model{suffix}")), model)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_as_stored_nothing_is_copied(suffix: str, tmp_path: Path) -> None:
    tied = {"share_decoder_input_output_embed": True}
    model = random_model(**tied)
    settings = SIZES | tied | {"connection": "1xskip+ln"}
    write_checkpoint(tmp_path / f"m{suffix}", checkpoint_of(model.state_dict(), settings), dtype=torch.float16)
    checkpoint = read_checkpoint(tmp_path / f"m{suffix}")
    built = build_transformer(checkpoint, source_vocabulary=12, target_vocabulary=14, as_stored=True)
    assert built.decoder.output_projection.weight is built.decoder.embed_tokens.weight
    for name, parameter in built.named_parameters():
        assert parameter.data_ptr() == checkpoint.model[name].data_ptr() and parameter.dtype == torch.float16
    own = build(checkpoint)
    assert own.decoder.output_projection.weight is own.decoder.embed_tokens.weight
    assert_same(built.float(), own)
    before = own.encoder.embed_tokens.weight.clone()
    checkpoint.model["encoder.embed_tokens.weight"].zero_()
    assert torch.equal(own.encoder.embed_tokens.weight, before)


def test_it_is_ready_to_translate_in_float32(tmp_path: Path) -> None:
    model = random_model(encoder_connection="2rskip+ln")
    settings = SIZES | {"encoder_connection": "2rskip+ln", "connection": "1xskip+ln", "dropout": 0.3}
    write_checkpoint(tmp_path / "m.safetensors", checkpoint_of(model.state_dict(), settings), dtype=torch.float16)
    state = torch.get_rng_state()
    built = build(read_checkpoint(tmp_path / "m.safetensors"))
    assert torch.equal(torch.get_rng_state(), state)
    assert not built.training and not any(parameter.requires_grad for parameter in built.parameters())
    for name, tensor in built.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, model.state_dict()[name].half().float()), name


@pytest.mark.parametrize("connection", ["1xskip+ln", "prenorm+ln"])
def test_stock_checkpoints(connection: str) -> None:
    model, checkpoint = stock_checkpoint(connection)
    assert_same(build(checkpoint), model)


def test_a_stock_checkpoint_with_the_norms_on_two_sides() -> None:
    model = random_model(encoder_connection="prenorm+ln", decoder_connection="1xskip+ln")
    encoder = to_stock({n: t for n, t in model.state_dict().items() if n.startswith("enc")}, connection="prenorm+ln")
    decoder = to_stock({n: t for n, t in model.state_dict().items() if n.startswith("dec")}, connection="1xskip+ln")
    assert_same(build(checkpoint_of(encoder | decoder, SIZES | {"encoder_normalize_before": True})), model)


def test_settings_that_are_missing_are_those_of_fairseqs_base_transformer() -> None:
    torch.manual_seed(0)
    settings = {"encoder_embed_dim": 64, "encoder_ffn_embed_dim": 32, "decoder_layers": 1, "encoder_layers": 1}
    both = settings | {"decoder_embed_dim": 64, "decoder_ffn_embed_dim": 32}
    model = Transformer(TransformerConfig(source_vocabulary=12, target_vocabulary=14, **both))
    built = build(checkpoint_of(to_stock(model.state_dict(), connection="1xskip+ln"), settings))
    assert built.config == TransformerConfig(
        source_vocabulary=12,
        target_vocabulary=14,
        **both,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_connection="1xskip+ln",
        decoder_connection="1xskip+ln",
        max_source_positions=1024,
        max_target_positions=1024,
    )


def test_names_of_fairseqs_early_versions() -> None:
    model, checkpoint = stock_checkpoint()
    stock = checkpoint.model
    old: dict[str, Tensor] = {"encoder.embed_positions.weights": torch.zeros(5, 16)}
    old["decoder.embed_positions.weights"] = torch.zeros(5, 16)
    for name, tensor in stock.items():
        before, _, last = name.rpartition(".")
        if before.endswith("q_proj"):
            attention = before.removesuffix(".q_proj")
            parts = [stock[f"{attention}.{part}_proj.{last}"] for part in "qkv"]
            old[f"{attention}.in_proj_{last}"] = torch.cat(parts)
        elif name == "decoder.output_projection.weight":
            old["decoder.embed_out"] = tensor
        elif "layer_norm" in name:
            layer, _, norm = before.rpartition(".")
            order = ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
            if name.startswith("encoder"):
                order.remove("encoder_attn_layer_norm")
            old[f"{layer}.layer_norms.{order.index(norm)}.{last}"] = tensor
        elif not before.endswith(("k_proj", "v_proj")):
            old[name] = tensor
    assert len(old) < len(stock)
    assert_same(build(checkpoint_of(old, checkpoint.config["model"])), model)


@pytest.mark.parametrize("tied", [{"share_decoder_input_output_embed": True}, {"share_all_embeddings": True}])
def test_a_tied_output_projection_that_was_not_saved(tied: dict[str, bool]) -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(source_vocabulary=14, target_vocabulary=14, **SIZES, **tied)).eval()
    stock = to_stock(model.state_dict(), connection="1xskip+ln")
    del stock["decoder.output_projection.weight"]
    built = build_transformer(checkpoint_of(stock, SIZES | tied), source_vocabulary=14, target_vocabulary=14)
    assert_same(built, model)
    assert built.decoder.output_projection.weight is built.decoder.embed_tokens.weight


def test_foreign_dictionaries() -> None:
    _, checkpoint = stock_checkpoint()
    for sizes, said in (
        ((1012, 14), "the source one has 1,012 .* 12; give"),
        ((12, 99), "the target one has 99 .* 14;"),
    ):
        with pytest.raises(SettingError, match=f"another model: {said}"):
            build_transformer(checkpoint, source_vocabulary=sizes[0], target_vocabulary=sizes[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adaptive_softmax_cutoff": [3, 4]}, r"adaptive_softmax_cutoff=\[3, 4\], which rskip's models don't"),
        ({"decoder_output_dim": 8}, "decoder_output_dim=8, which rskip's"),
        ({"decoder_normalize_before": True, "no_decoder_final_norm": True}, "no_decoder_final_norm=True"),
        ({"encoder_layers": 3}, "encoder_layers is 3: expected 2, as the weights have"),
        ({"encoder_layers": 10**12}, "encoder_layers is 1000000000000: expected a whole number, 1 or more and at most"),
        ({"encoder_layers": "2"}, "encoder_layers is '2': expected a whole number"),
        ({"decoder_layers": 1}, "the file has decoder.layers.1.encoder_attn.k_proj.bias too"),
        ({"decoder_ffn_embed_dim": 25}, "decoder_ffn_embed_dim is 25: expected 24, as the weights have"),
        ({"decoder_normalize_before": True}, r"\(1xskip\+ln, prenorm\+ln\): the file has no decoder.layer_norm.bias"),
        ({"activation_fn": "laplace"}, "activation_fn is 'laplace': expected one of relu"),
        ({"encoder_connection": "3rskip+lm"}, "encoder_connection is '3rskip.lm': expected rskip with ln"),
    ],
)
def test_settings_that_the_model_cannot_have(settings: dict[str, Any], message: str) -> None:
    _, checkpoint = stock_checkpoint(**settings)
    with pytest.raises(ValueError, match=message) as caught:
        build(checkpoint)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"decoder_output_dim": 16, "adaptive_softmax_cutoff": None, "quant_noise_pq_block_size": 8},
        {"no_decoder_final_norm": True, "relu_dropout": 0.1, "offload_activations": True, "dropout": 0.3},
    ],
)
def test_settings_that_change_no_translation(settings: dict[str, Any]) -> None:
    model, checkpoint = stock_checkpoint(**settings)
    assert_same(build(checkpoint), model)


def test_other_kinds_of_models() -> None:
    _, checkpoint = stock_checkpoint()
    whole = checkpoint.model
    checkpoint.model = {name: tensor for name, tensor in whole.items() if not name.startswith("encoder")}
    with pytest.raises(ValueError, match=r"not an encoder-decoder Transformer: it has no matrix encoder\.layers"):
        build(checkpoint)
    convolutions = {name: tensor for name, tensor in whole.items() if ".self_attn." not in name}
    dynamic = {"encoder_conv_type": "dynamic", "decoder_conv_type": "dynamic"}
    with pytest.raises(ValueError, match="'lightconv_wmt_en_de', which is not an encoder-decoder Transformer"):
        build(checkpoint_of(convolutions, SIZES | dynamic, arch="lightconv_wmt_en_de"))
    checkpoint.model = whole | {"classification_heads.mnli.dense.weight": torch.zeros(1)}
    with pytest.raises(ValueError, match="the file has classification_heads.mnli"):
        build(checkpoint)


@pytest.mark.parametrize("arch", ["transformer", "transformer_iwslt_de_en", "transformer_wmt_en_de_big_t2t"])
def test_what_fairseq_trains_gives_fairseqs_logits(arch: str) -> None:
    models = pytest.importorskip("fairseq.models", reason="needs fairseq: run `rskip setup-fairseq`")
    args = Namespace(arch=arch, **SIZES)
    models.ARCH_CONFIG_REGISTRY[arch](args)
    stock = models.ARCH_MODEL_REGISTRY[arch].build_model(args, small_dictionaries()).eval()
    built = build(checkpoint_of(dict(stock.state_dict()), vars(args), arch=arch))
    with torch.no_grad():
        expected, _ = stock(SOURCE, SOURCE.ne(1).sum(1), PREFIX)
        torch.testing.assert_close(built(SOURCE, PREFIX), expected, rtol=0, atol=1e-4)
    assert expected.std() > 0.1


def small_dictionaries() -> SimpleNamespace:
    """A task with dictionaries of 12 and 14 tokens."""
    from fairseq.data import Dictionary

    task = SimpleNamespace(source_dictionary=Dictionary(), target_dictionary=Dictionary())
    for dictionary, count in ((task.source_dictionary, 8), (task.target_dictionary, 10)):
        for index in range(count):
            dictionary.add_symbol(f"word{index}")
    return task


GROUPED = {
    "encoder": {"embed_dim": 512, "ffn_embed_dim": 24, "layers": 1, "attention_heads": 4, "normalize_before": True},
    "decoder": {"ffn_embed_dim": 32, "layers": 2, "attention_heads": 2, "learned_pos": True},
}


@pytest.mark.parametrize("legacy", [True, False], ids=["flat defaults beside the groups", "groups only"])
def test_groups_of_settings_as_fairseq_hydra_train_saves_them(legacy: bool, tmp_path: Path) -> None:
    models = pytest.importorskip("fairseq.models", reason="needs fairseq: run `rskip setup-fairseq`")
    from fairseq.models.transformer import TransformerConfig as TheirConfig
    from fairseq.models.transformer import TransformerModelBase
    from omegaconf import OmegaConf

    # a group overrides all flat settings of the architecture that it covers
    given = {"_name": "transformer", "encoder_layers": 3, "decoder_normalize_before": True, **GROUPED}
    task = small_dictionaries()
    torch.manual_seed(1)
    if legacy:
        cfg = OmegaConf.create(given)
        stock = models.build_model(cfg, task).eval()
    else:
        cfg = OmegaConf.merge(OmegaConf.structured(TheirConfig), GROUPED)
        stock = TransformerModelBase.build_model(OmegaConf.create({"model": cfg}).model, task).eval()
    model = OmegaConf.to_container(OmegaConf.create({"model": cfg}), resolve=True, enum_to_str=True)["model"]
    assert ("encoder_attention_heads" in model) == legacy
    cfg = {"task": {"_name": "translation", "source_lang": "en", "target_lang": "de"}, "model": model}
    torch.save({"cfg": cfg, "args": None, "model": stock.state_dict()}, tmp_path / "model.pt")
    checkpoint = read_checkpoint(tmp_path / "model.pt")
    write_checkpoint(tmp_path / "model.safetensors", checkpoint)
    for each in (checkpoint, read_checkpoint(tmp_path / "model.safetensors")):
        built = build(each)
        assert (built.config.encoder_attention_heads, built.config.decoder_attention_heads) == (4, 2)
        with torch.no_grad():
            expected, _ = stock(SOURCE, SOURCE.ne(1).sum(1), PREFIX)
            torch.testing.assert_close(built(SOURCE, PREFIX), expected, rtol=0, atol=1e-4)
    if legacy:  # and back to fairseq
        write_checkpoint(tmp_path / "back.pt", read_checkpoint(tmp_path / "model.safetensors"))
        state = torch.load(tmp_path / "back.pt", weights_only=False)
        back = models.ARCH_MODEL_REGISTRY["transformer"].build_model(state["args"], task).eval()
        back.load_state_dict(state["model"], strict=True)
        with torch.no_grad():
            assert torch.equal(back(SOURCE, SOURCE.ne(1).sum(1), PREFIX)[0], expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": {"layers_to_keep": [0, 2]}}, r"encoder_layers_to_keep=\[0, 2\], which rskip's"),
        ({"quant_noise": {"pq": 0.1}}, "quant_noise_pq=0.1, which rskip's"),
        ({"decoder": {"input_dim": 8}}, "decoder_input_dim=8, which rskip's"),
        ({"encoder": {"attention_heads": 5}}, "encoder_embed_dim is 512: expected a multiple of .* heads, 5"),
        ({"encoder": {"rotary": True}}, "encoder_rotary=True, a setting that rskip doesn't know"),
        ({"merge_src_tgt_embed": True}, "merge_src_tgt_embed=True, a setting that rskip doesn't know"),
        ({"moe": {"freq": 0, "experts": 8, "of": torch.ones(2)}}, r"moe=\['experts', 'of'\], a setting that"),
        ({"activation_fn": torch.ones(1)}, "settings are damaged .activation_fn is a Tensor."),
    ],
)
def test_grouped_settings_that_the_model_cannot_have(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    _, checkpoint = stock_checkpoint()
    cfg = {"task": {"_name": "translation"}, "model": {"_name": "transformer", **settings}}
    torch.save({"cfg": cfg, "model": checkpoint.model}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=message) as caught:
        build(read_checkpoint(tmp_path / "model.pt"))
    assert "\n" not in str(caught.value)


def test_a_setting_by_a_transformers_name_that_nobody_knows() -> None:
    _, checkpoint = stock_checkpoint(decoder_rotary=True)
    with pytest.raises(ValueError, match="a checkpoint with decoder_rotary=True, a setting that rskip doesn't know"):
        build(checkpoint)
    checkpoint.config["model"]["connection"] = "1xskip+ln"
    with pytest.raises(ValueError, match="decoder_rotary=True, a setting that rskip doesn't know"):
        build(checkpoint)
    model, checkpoint = stock_checkpoint(decoder_rotary=False, my_criterions_flag=3)
    assert_same(build(checkpoint), model)


@pytest.mark.parametrize("heads", [numpy.int64(2), 2])
def test_settings_that_are_numpys_numbers(heads: Any, tmp_path: Path) -> None:
    _, checkpoint = stock_checkpoint()
    sides = {f"{side}_attention_heads": heads for side in ("encoder", "decoder")}
    args = Namespace(arch="transformer", task="translation", **SIZES | sides)
    torch.save({"args": args, "model": checkpoint.model}, tmp_path / "model.pt")
    assert build(read_checkpoint(tmp_path / "model.pt")).config.encoder_attention_heads == 2
