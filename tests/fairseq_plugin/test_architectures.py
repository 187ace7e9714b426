"""Every named architecture, its defaults and its flags."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import fields

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_compat.one_line_errors import UsageError
from rskip.checkpoint import read_checkpoint
from rskip.checkpoint.transformer import build_transformer
from rskip.connections import list_connections
from rskip.fairseq_plugin.flags import config_from_args, take_compile_layers, unsupported_flags
from rskip.fairseq_plugin.generator import BeamSearchGenerator, Transformers
from rskip.fairseq_plugin.usage_errors import flag_of
from rskip.generation import SearchOptions
from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.architectures import CONNECTIONS, SIZES, architecture

ARCHITECTURES = [architecture(connection, size) for connection in CONNECTIONS for size in SIZES]
SMALL = ["--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "8", "--share-all-embeddings"]


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("transformer_rskip_ln", ("2rskip+ln", 512, 2048, 8, 6)),
        ("transformer_skip_ln_tiny", ("1xskip+ln", 128, 256, 4, 4)),
        ("transformer_xskip_small", ("2xskip", 256, 1024, 4, 3)),
        ("transformer_xskip_ln_iwslt", ("2xskip+ln", 512, 1024, 4, 6)),
        ("transformer_sas_2layer", ("sas", 512, 2048, 8, 2)),
        ("transformer_wskip_ln_big", ("wskip+ln", 1024, 4096, 16, 6)),
        ("transformer_prenorm", ("prenorm+ln", 512, 2048, 8, 6)),
    ],
)
def test_defaults(parse, task, arch, expected):
    config = config_from_args(parse("--arch", arch), task.source_dictionary, task.target_dictionary)
    for side in ("encoder", "decoder"):
        found = tuple(
            getattr(config, f"{side}_{key}")
            for key in ("connection", "embed_dim", "ffn_embed_dim", "attention_heads", "layers")
        )
        assert found == expected


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_parameter_of_every_architecture_gets_a_finite_gradient(parse, task, arch):
    torch.manual_seed(0)
    args = parse("--arch", arch, *SMALL)
    before = dict(vars(args))
    ARCH_CONFIG_REGISTRY[arch](args)
    assert vars(args) == before  # idempotent
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    tokens = torch.randint(4, 20, (3, 7))
    logits, _ = model(tokens, torch.tensor([7] * 3), tokens)
    features, _ = model.extract_features(tokens, torch.tensor([7] * 3), tokens)
    assert model.output_layer(features).shape == logits.shape
    logits.float().log_softmax(-1)[..., 5].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


def test_connection_flags_replace_the_default_on_both_stacks_or_one(parse, task):
    def specs(*flags):
        args = parse("--arch", "transformer_rskip_ln_tiny", *flags)
        config = config_from_args(args, task.source_dictionary, task.target_dictionary)
        return config.encoder_connection, config.decoder_connection

    assert specs("--connection", "3xskip+rms") == ("3xskip+rms", "3xskip+rms")
    assert specs("--encoder-connection", "sas") == ("sas", "2rskip+ln")
    assert specs("--connection", "wskip+ln", "--decoder-connection", "highway") == ("wskip+ln", "highway")


@pytest.mark.parametrize("family", list_connections(), ids=lambda family: family.name)
def test_a_model_of_every_family_is_the_same_to_our_translator(parse, task, family, tmp_path):
    """By the registry: what fairseq-train makes and saves, read and built as `rskip translate` does."""
    factor, norm = "" if family.factor is None else "2", "+ln" if "ln" in family.norms else ""
    layers = ["--encoder-layers", "2", "--decoder-layers", "2"]
    arch, spec = "transformer_skip_ln_tiny", f"{factor}{family.name}{norm}"
    args = parse("--arch", arch, *SMALL, *layers, "--connection", spec)
    torch.manual_seed(0)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    state = {"cfg": {"model": args, "task": Namespace(_name="translation")}, "model": model.state_dict()}
    torch.save(state, tmp_path / "checkpoint.pt")
    checkpoint = read_checkpoint(tmp_path / "checkpoint.pt")
    ours = build_transformer(checkpoint, source_vocabulary=20, target_vocabulary=20)
    source, prefix = torch.randint(4, 20, (2, 3, 7))
    with torch.no_grad():
        expected, _ = model(source, torch.tensor([7] * 3), prefix)
        torch.testing.assert_close(ours(source, prefix), expected, rtol=1e-5, atol=1e-5)
    assert ours.config.encoder_connection == spec


# A value other than "off" for every flag of fairseq's transformer that our models have no part for.
@pytest.mark.parametrize("name", unsupported_flags())
def test_unsupported_flags_are_refused_by_name(parse, task, name):
    args = parse("--arch", "transformer_rskip_ln_tiny")
    setattr(args, name, 3)
    with pytest.raises(UsageError, match=f"^{flag_of(name)} 3 is not supported by rskip's architectures: "):
        config_from_args(args, task.source_dictionary, task.target_dictionary)


def test_a_model_as_marians_starts_with_its_token_and_has_a_bias(parse, task):
    """Trained and scored, it computes what our translator computes, though fairseq's targets start with the end."""
    flags = ["--output-bias", "--start", "begin", "--activation-fn", "swish", "--encoder-learned-pos"]
    model = ARCH_MODEL_REGISTRY["transformer_skip_ln_tiny"].build_model(
        parse("--arch", "transformer_skip_ln_tiny", *SMALL, *flags), task
    )
    torch.nn.init.normal_(model.decoder.output_projection.bias)
    ours = Transformer(model.config).eval()
    ours.load_state_dict(model.eval().state_dict())
    source, prefix = torch.randint(4, 20, (2, 3, 7))
    begin = torch.full((3, 1), task.target_dictionary.bos())
    with torch.no_grad():
        expected = ours(source, torch.cat([begin, prefix], dim=1))
        end = torch.full_like(begin, task.target_dictionary.eos())
        found, _ = model(source, torch.tensor([7] * 3), torch.cat([end, prefix], dim=1))
        first, _ = model.decoder(end, model.encoder(source, torch.tensor([7] * 3)), incremental_state={})
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first, expected[:, :1], rtol=1e-5, atol=1e-5)
    generator = BeamSearchGenerator([model], task.target_dictionary, Transformers(), SearchOptions(beam=1))
    for found, logits in zip(generator.generate([], {"net_input": {"src_tokens": source}}), expected, strict=True):
        probabilities = logits[0].log_softmax(0)
        likeliest = max(probabilities[2], *probabilities[3:])  # neither start nor padding
        torch.testing.assert_close(found[0]["positional_scores"][0], likeliest, rtol=1e-5, atol=1e-5)


SUPPORTED = {
    "dropout": 0.25, "attention_dropout": 0.15, "activation_dropout": 0.05, "activation_fn": "gelu",
    "encoder_layerdrop": 0.1, "decoder_layerdrop": 0.2, "encoder_layers": 1, "decoder_layers": 3,
    "encoder_embed_dim": 24, "decoder_embed_dim": 12, "encoder_ffn_embed_dim": 40, "decoder_ffn_embed_dim": 44,
    "encoder_attention_heads": 2, "decoder_attention_heads": 3, "encoder_learned_pos": True,
    "decoder_learned_pos": True, "share_decoder_input_output_embed": True, "no_scale_embedding": True,
    "no_token_positional_embeddings": True, "layernorm_embedding": True, "max_source_positions": 77,
    "max_target_positions": 88, "checkpoint_activations": True,
}  # fmt: skip


def test_supported_flags_reach_the_model(parse, task):
    given = [
        word for name, value in SUPPORTED.items() for word in [flag_of(name), *([] if value is True else [str(value)])]
    ]
    args = parse("--arch", "transformer_rskip_ln_tiny", *given)
    model = ARCH_MODEL_REGISTRY["transformer_rskip_ln_tiny"].build_model(args, task)
    for name, value in SUPPORTED.items():
        assert getattr(model.config, name) == value, name
    assert model.max_positions() == (77, 88)
    untested = {field.name for field in fields(TransformerConfig)} - SUPPORTED.keys()
    assert untested == {
        "source_vocabulary", "target_vocabulary", "padding_index", "encoder_connection", "decoder_connection",
        "share_all_embeddings", "value_residual", "output_bias", "start",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--connection", "2.5rskip+ln"], "--connection is .2.5rskip.ln.: expected an integer"),
        (["--connection", "2rskip"], "--connection is .2rskip.: expected a normalisation"),
        (["--encoder-connection", "2rskp+ln"], "--encoder-connection is '2rskp.ln': .*2rskip"),
        (["--encoder-normalize-before"], "--encoder-normalize-before is not supported .* prenorm"),
        (["--criterion", "label_smoothed_cross_entropy_with_alignment"], "needs attention while training"),
        (["--connection", "2xskip+bn"], "bn and gn1 are for feature maps"),
        (["--value-residual", "fixed", "--decoder-layerdrop", "0.1"], "--decoder-layerdrop is 0.1: expected 0 with"),
        (["--encoder-embed-dim", "30", "--encoder-attention-heads", "4"], "--encoder-embed-dim is 30: expected"),
        (["--encoder-ffn-embed-dim", "0"], "--encoder-ffn-embed-dim is 0: expected"),
    ],
)
def test_mistakes_are_found_when_flags_are_parsed(parse, flags, message):
    with pytest.raises(UsageError, match=message) as raised:
        parse("--arch", "transformer_rskip_ln_tiny", *flags)
    assert "\n" not in str(raised.value)


def test_a_checkpoint_of_another_architecture_names_the_parameter(parse, task):
    def build(*flags, small=SMALL):
        args = parse("--arch", "transformer_rskip_ln_tiny", *small, *flags)
        return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)

    model = build()
    named = (
        "another architecture: parameter decoder.layers.0.*norm.bias is not in the model "
        "[(]the model's connections: 2rskip[+]ln[)]: use the data folder of its training run, without --model-over"
    )
    with pytest.raises(UsageError, match=named):
        model.load_state_dict(build("--connection", "2xskip+ln").state_dict())
    with pytest.raises(UsageError, match=r"another architecture: .* has shape \(24, 16\) in the checkpoint and \(8"):
        model.load_state_dict(build("--encoder-ffn-embed-dim", "24").state_dict())
    shared = "encoder.embed_tokens.weight and decoder.embed_tokens.weight differ in the checkpoint, but the model share"
    with pytest.raises(UsageError, match=shared):
        model.load_state_dict(build(small=SMALL[:-1]).state_dict())


def test_compiled_layers_are_asked_for_by_a_flag_that_no_checkpoint_keeps(parse, task):
    args = parse("--arch", "transformer_rskip_ln_tiny", *SMALL, "--compile-layers")
    model = ARCH_MODEL_REGISTRY["transformer_rskip_ln_tiny"].build_model(args, task)
    layers = [*model.encoder.layers, *model.decoder.layers]
    assert layers and all(each._compiled_call_impl is not None for each in layers)
    assert not hasattr(args, "compile_layers")
    hydra = OmegaConf.create({"compile_layers": True})
    OmegaConf.set_struct(hydra, True)
    assert take_compile_layers(hydra) and not hydra
    again = ARCH_MODEL_REGISTRY["transformer_rskip_ln_tiny"].build_model(args, task)
    assert all(each._compiled_call_impl is None for each in again.encoder.layers)
