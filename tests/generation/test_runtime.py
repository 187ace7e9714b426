"""A model's file runs without PyTorch as the model does in PyTorch, or is refused with the reason."""

from __future__ import annotations

import json
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rskip.checkpoint import Checkpoint, build_transformer, write_model
from rskip.checkpoint.arrays import arrays_of
from rskip.checkpoint.config_file import read_header
from rskip.cpu import find_library, for_inference
from rskip.cpu.weights import to_bfloat16
from rskip.generation import SearchOptions, SpecialTokens, find_search
from rskip.generation.runtime import RuntimeModel
from rskip.kernel_forms import PRECISIONS, NoKernelForm
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig

pytestmark = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")

WORDS = {"source_vocabulary": 40, "target_vocabulary": 90}
SOURCES = [[5, 17, 30, 8, 2], [9, 2], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 2], [4, 4, 2]]
OPTIONS = SearchOptions(beam=3, nbest=2, max_length_b=12, token_scores=True, attention=True)
SPECS = [
    "1xskip", "0.5xskip+ln:branch_scale=2", "2xskip+rms", "2rskip+ln", "3rskip+rms", "prenorm+ln", "prenorm+rms", "sas",
    "sas:gate=single,gamma=free,host=prenorm", "sas+rms:norm_term=true", "sas:norm_term=false", "highway",
    "highway:gate=full", "wskip+ln", "wskip+rms:init=2", "highway:gate=shortcut", "highway:gate=single,bias=-1",
    "deepnorm", "admin", "keel+rms", "lns", "mixln:ratio=0.6", "sandwich", "layerscale+ln", "rezero:init=1",
    "laurel+ln", "laurel:form=rw", "askip+ln:form=depth", "askip+rms:form=recursive",
]  # fmt: skip


def saved(folder, connection="2rskip+ln", *, words=WORDS, dtype=None, change=lambda model: None, **settings):
    """A folder with a small model whose probabilities are uneven, and the model's checkpoint."""
    torch.manual_seed(3)
    sizes = {"embed_dim": 32, "ffn_embed_dim": 48, "attention_heads": 4, "layers": 2, "connection": connection}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    config = TransformerConfig(**{**words, **sides, **settings})
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "gate" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.decoder.output_projection.weight.mul_(3)
        change(model)
    values = {name: value for name, value in config.to_dict().items() if name not in words}
    task = {"task": "translation", "arch": "transformer_tiny", "source_lang": "en", "target_lang": "de"}
    checkpoint = Checkpoint(model=model.state_dict(), config={**task, "structured": True, "model": values})
    write_model(folder, checkpoint, dtype=dtype)
    return folder / "model.safetensors", checkpoint


def opened(file, precision="float32", **words):
    return RuntimeModel(file, precision=precision, **{"source_words": 40, "target_words": 90, **words})


def in_torch(checkpoint, precision, options, words=WORDS):
    """What PyTorch's model finds with the same kernels."""
    model = for_inference(build_transformer(checkpoint, **words), precision)
    longest = max(map(len, SOURCES))
    padded = torch.tensor([[*source, *[1] * (longest - len(source))] for source in SOURCES])
    lengths = torch.tensor([len(source) for source in SOURCES])
    with torch.inference_mode():
        return find_search(model.device)(model, model.encode(padded), options, source_lengths=lengths)


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [each.tokens.tolist() for each in ours] == [each.tokens.tolist() for each in theirs]
        for own, other in zip(ours, theirs, strict=True):
            assert own.score == pytest.approx(other.score, abs=1e-4)
            assert torch.allclose(torch.from_numpy(own.token_scores), other.token_scores, atol=1e-3)
            assert own.attention.shape == (len(own.tokens), other.attention.size(1))
            assert torch.allclose(torch.from_numpy(own.attention), other.attention, atol=1e-3)


@pytest.mark.parametrize("connection", SPECS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_file_runs_as_its_model(tmp_path, connection, precision):
    if precision == "int8" and not find_library().library.largest_weight:
        pytest.skip("this processor has no exact 8-bit products")
    file, checkpoint = saved(tmp_path, connection)
    model = opened(file, precision)
    assert (model.connection, model.precision, str(model.device)) == (connection, precision, "cpu")
    assert_equal(model.search(SOURCES, OPTIONS, special=SpecialTokens()), in_torch(checkpoint, precision, OPTIONS))


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder_learned_pos": True, "decoder_learned_pos": True, "max_source_positions": 16},
        {"no_token_positional_embeddings": True, "no_scale_embedding": True, "activation_fn": "tanh"},
        {"layernorm_embedding": True, "output_bias": True, "start": "begin"},
        {"share_all_embeddings": True, "words": {"source_vocabulary": 90, "target_vocabulary": 90}},
        {"encoder_embed_dim": 64, "encoder_layers": 3, "decoder_attention_heads": 2, "dtype": torch.float16},
        {"share_decoder_input_output_embed": True, "dtype": torch.bfloat16},
        {"decoder_connection": "sas", "max_target_positions": 4},
    ],
    ids=str,
)
def test_settings(tmp_path, settings):
    words = settings.get("words", WORDS)
    file, checkpoint = saved(tmp_path, **settings)
    if "dtype" in settings:
        checkpoint.model = {name: value.to(settings["dtype"]).float() for name, value in checkpoint.model.items()}
    model = opened(file, source_words=words["source_vocabulary"])
    reference = build_transformer(checkpoint, **words)
    for name in ("max_positions", "max_source_positions", "trained_source_positions", "target_start", "connection"):
        assert getattr(model, name) == getattr(reference, name)
    options = replace(OPTIONS, max_length_b=300) if "max_target_positions" in settings else OPTIONS
    expected = in_torch(checkpoint, "float32", options, words)
    assert_equal(model.search(SOURCES, options, special=SpecialTokens()), expected)


def test_prefixes_steps_and_copies(tmp_path):
    file, _ = saved(tmp_path)
    model, steps = opened(file), []
    found = model.search(SOURCES, OPTIONS, prefixes=[[7, 8], [9, 1], [1, 1], [30, 1]], special=SpecialTokens())
    for sentence, prefix in zip(found, ([7, 8], [9], [], [30]), strict=True):
        assert sentence[0].tokens[: len(prefix)].tolist() == prefix
    whole = model.search(SOURCES, OPTIONS, special=SpecialTokens(), each_step=steps.append)
    assert steps == list(range(1, len(steps) + 1)) and len(steps) > 3
    copied = pickle.loads(pickle.dumps(model)).search(SOURCES, OPTIONS, special=SpecialTokens())
    assert [each[0].score for each in whole] == [each[0].score for each in copied]
    assert model.search([], OPTIONS, special=SpecialTokens()) == []
    with pytest.raises(IndexError, match="expected 0 to 39"):
        model.search([[40, 2]], OPTIONS, special=SpecialTokens())


def test_a_copy_is_of_the_same_model_or_refused(tmp_path, monkeypatch):
    """A pickled model reads its file again, which may have been replaced meanwhile."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/model.safetensors").write_text("another file")
    file, checkpoint = saved(tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    model = opened(Path("model.safetensors"))
    expected, stored = model.search(SOURCES, OPTIONS, special=SpecialTokens()), pickle.dumps(model)
    monkeypatch.chdir(tmp_path / "elsewhere")
    file.touch()
    copied = pickle.loads(stored).search(SOURCES, OPTIONS, special=SpecialTokens())
    assert [each[0].score for each in copied] == [each[0].score for each in expected]
    before, config = file.read_bytes(), json.loads(file.with_name("config.json").read_text())
    bias, words = (checkpoint.model[name] for name in ("encoder.layers.0.fc1.bias", "encoder.embed_tokens.weight"))
    changed = bias.clone()
    changed[3] += 1e-6
    for change in ({"encoder.layers.0.fc1.bias": changed}, {"encoder.embed_tokens.weight": words.flip(0)}):
        write_model(file.parent, replace(checkpoint, model={**checkpoint.model, **change}))
        os.utime(file, ns=(0, 0))
        with pytest.raises(ValueError, match="model.safetensors was replaced since the model was loaded: load the mod"):
            pickle.loads(stored)
    file.write_bytes(before)
    config["model"]["no_scale_embedding"] = True
    file.with_name("config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="model.safetensors was replaced since the model was loaded"):
        pickle.loads(stored)
    found = model.search(SOURCES, OPTIONS, special=SpecialTokens())  # holds nothing of the file
    assert [each[0].score for each in found] == [each[0].score for each in expected]
    file.unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        pickle.loads(stored)


def test_parameters_are_read_one_by_one(tmp_path):
    """A file that was replaced after its header was read is refused, and its floats have the stored values."""
    file, checkpoint = saved(tmp_path)
    header = read_header(file)
    with arrays_of(file, header) as arrays:
        assert arrays.shapes == checkpoint.shapes
        for name, value in checkpoint.model.items():
            assert np.array_equal(arrays.read(name), value.numpy())
        first = arrays.fingerprint({})
    with arrays_of(file, header) as arrays:
        arrays.read("encoder.layers.0.fc1.bias")
        assert arrays.fingerprint({}) != first
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="the checksum of .* is wrong"), arrays_of(file, header) as arrays:
        for name in checkpoint.model:
            arrays.read(name)
    file.write_bytes(content[:-4])
    with pytest.raises(ValueError, match="checksum|damaged"), arrays_of(file, header) as arrays:
        for name in checkpoint.model:
            arrays.read(name)


def test_threads_share_a_model(tmp_path):
    """Sources of up to 1,500 tokens from 8 threads, whose tables of positions grow while others read them."""
    lengths = [3, 1500, 40, 7, 700, 256, 257, 12, 90, 1100, 5, 300, 31, 900, 2, 120]
    options = SearchOptions(beam=2, max_length_a=0.1, max_length_b=4, min_length=4)

    def translated(model, length):
        source = [4 + (7 * position + length) % 36 for position in range(length - 1)] + [2]
        found = model.search([source, source[length // 2 :]], options, special=SpecialTokens())
        return [(each[0].tokens.tolist(), each[0].score) for each in found]

    file, _ = saved(tmp_path)
    alone, shared = opened(file), opened(file)
    expected = [translated(alone, length) for length in lengths]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda length: translated(shared, length), lengths)) == expected


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"connection": "normformer"}, "the connection 'normformer' needs PyTorch"),
        ({"connection": "hyper"}, "the connection 'hyper'"),
        ({"connection": "wskip+ln:rate=2"}, "the connection 'wskip"),
        ({"activation_fn": "gelu"}, "activation_fn=gelu"),
        ({"value_residual": "fixed"}, "value_residual=fixed"),
    ],
    ids=["normformer", "hyper", "wskip", "gelu", "value_residual"],
)
def test_what_only_pytorch_can_run_says_why(tmp_path, settings, reason):
    with pytest.raises(NoKernelForm, match=reason):
        opened(saved(tmp_path, **settings)[0])


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"encoder_attention_heads": -8}, SettingError, "encoder_attention_heads is -8"),
        ({"decoder_attention_heads": 0}, SettingError, "decoder_attention_heads is 0"),
        ({"encoder_layers": "2"}, SettingError, "encoder_layers is '2'"),
        ({"no_scale_embedding": "false"}, SettingError, "no_scale_embedding is 'false'"),
        ({"encoder_connection": 7}, SettingError, "encoder_connection is 7"),
        ({"start": "middle"}, SettingError, "start is 'middle'"),
        ({"decoder_layers": 3}, SettingError, "lack decoder.layers.2.* get the weights and config.json again"),
        ({"decoder_layers": 1}, SettingError, "have decoder.layers.1.*, which the settings lack"),
        ({"encoder_attention_heads": 5}, SettingError, "encoder_embed_dim is 32: expected a multiple"),
        ({"encoder_ffn_embed_dim": 47}, SettingError, r"in the shape \(48, 32\), .* describe \(47, 32\)"),
        ({"output_bias": True}, SettingError, "lack decoder.output_projection.bias"),
        ({"share_all_embeddings": True}, SettingError, "differ, but the settings say"),
        *(
            ({"encoder_connection": spec}, SettingError, "connection is ")
            for spec in (
                "-1xskip+ln", "0rskip+ln", "2.5rskip+ln", "1.2.3xskip+ln", "1e999xskip+ln", "101rskip+ln",
                "2prenorm+ln", "prenorm", "rskip+ln", "highway+ln", "1xskip+ln:branch_scale=-1", "1xskip+bn",
                "1xskip+ln:branch_scale=a", "1xskip+ln:branch_scale=2,branch_scale=2", "2rskip+ln:", "sas:gate=half",
                "2rskip+ln:more=1", "sas:norm_term=false,gamma=free", "x" * 501,
            )
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_config_that_does_not_fit(tmp_path, changes, error, reason):
    file, _ = saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"].update(changes)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match=reason):
        opened(file)


def test_specs_are_read_as_elsewhere(tmp_path):
    """In upper case, with spaces: fairseq's checkpoints keep the text of the command line."""
    file, checkpoint = saved(tmp_path, "highway:gate=shortcut")
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"] |= dict.fromkeys(("encoder_connection", "decoder_connection"), " Highway:gate= SHORTCUT ")
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = opened(file).search(SOURCES, OPTIONS, special=SpecialTokens())
    assert_equal(found, in_torch(checkpoint, "float32", OPTIONS))


def test_another_vocabulary_is_refused(tmp_path):
    with pytest.raises(SettingError, match="the source one has 41 tokens"):
        opened(saved(tmp_path)[0], source_words=41)


def test_a_model_per_pair_is_left_to_pytorch(tmp_path):
    file, checkpoint = saved(tmp_path)
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
    words = {"source_vocabulary": 90, "target_vocabulary": 90}
    file, checkpoint = saved(tmp_path, share_all_embeddings=True, words=words)
    checkpoint.model = {name: value.clone() for name, value in checkpoint.model.items()}
    write_model(tmp_path / "twice", checkpoint)
    twice = opened(tmp_path / "twice/model.safetensors", source_words=90)
    expected = opened(file, source_words=90).search(SOURCES, OPTIONS, special=SpecialTokens())
    found = twice.search(SOURCES, OPTIONS, special=SpecialTokens())
    assert [each[0].tokens.tolist() for each in found] == [each[0].tokens.tolist() for each in expected]


def test_bfloat16_is_rounded_as_in_pytorch():
    values = torch.cat([torch.randn(1000), torch.tensor([math.inf, -math.inf, 0.0, -0.0, 1e-40, 3.3e38, math.nan])])
    rounded = torch.from_numpy(to_bfloat16(values.numpy()).view("int16")).view(torch.bfloat16)
    assert torch.equal(rounded.nan_to_num(7), values.bfloat16().nan_to_num(7))
