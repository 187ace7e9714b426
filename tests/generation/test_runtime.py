"""A model's file runs without PyTorch as the model does in PyTorch."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from rskip.checkpoint import build_transformer, write_model
from rskip.checkpoint.arrays import ModelFile
from rskip.cpu import find_library, for_inference
from rskip.generation import SearchOptions, SpecialTokens, find_search
from tests.cpu.model_files import ONE_DICTIONARY, WORDS, opened, saved
from tests.generation.conftest import assert_equal

pytestmark = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")

SOURCES = [[5, 17, 30, 8, 2], [9, 2], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 2], [4, 4, 2]]
OPTIONS = SearchOptions(beam=3, nbest=2, max_length_b=12, token_scores=True, attention=True)
SPECS = [
    "1xskip", "0.5xskip+ln:branch_scale=2", "2xskip+rms", "2rskip+ln", "3rskip+rms", "prenorm+ln", "prenorm+rms", "sas",
    "sas:gate=single,gamma=free,host=prenorm", "sas+rms:norm_term=true", "sas:norm_term=false", "highway",
    "highway:gate=full", "wskip+ln", "wskip+rms:init=2", "highway:gate=shortcut", "highway:gate=single,bias=-1",
    "deepnorm", "admin", "keel+rms", "lns", "mixln:ratio=0.6", "sandwich", "layerscale+ln", "rezero:init=1",
    "laurel+ln", "laurel:form=rw", "askip+ln:form=depth", "askip+rms:form=recursive",
]  # fmt: skip


def in_torch(checkpoint, precision, options, words=WORDS):
    """What PyTorch's model finds with the same kernels."""
    model = for_inference(build_transformer(checkpoint, **words), precision)
    longest = max(map(len, SOURCES))
    padded = torch.tensor([[*source, *[1] * (longest - len(source))] for source in SOURCES])
    lengths = torch.tensor([len(source) for source in SOURCES])
    with torch.inference_mode():
        return find_search(model.device)(model, model.encode(padded), options, source_lengths=lengths)


def found_in(model, options=OPTIONS, sources=SOURCES, **settings):
    return model.search(sources, options, special=SpecialTokens(), **settings)


equal = partial(assert_equal, score=1e-4, token=1e-3, attention=1e-3)  # a file's model finds what PyTorch's does
IN_EACH_PRECISION = [("2rskip+ln", each) for each in ("bfloat16", "int8")] + [
    (each, "int8") for each in ("sas", "highway:gate=full", "askip+rms:form=recursive", "laurel+ln")
]


@pytest.mark.parametrize(("connection", "precision"), [*((each, "float32") for each in SPECS), *IN_EACH_PRECISION])
def test_a_file_runs_as_its_model(tmp_path, connection, precision):
    if precision == "int8" and not find_library().library.largest_weight:
        pytest.skip("this processor has no exact 8-bit products")
    file, checkpoint = saved(tmp_path, connection)
    model = opened(file, precision)
    assert (model.connection, model.precision, str(model.device)) == (connection, precision, "cpu")
    equal(found_in(model), in_torch(checkpoint, precision, OPTIONS))


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder_learned_pos": True, "decoder_learned_pos": True, "max_source_positions": 16},
        {"no_token_positional_embeddings": True, "no_scale_embedding": True, "activation_fn": "tanh"},
        {"layernorm_embedding": True, "output_bias": True, "start": "begin"},
        {"share_all_embeddings": True, "words": ONE_DICTIONARY},
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
    equal(found_in(model, options), in_torch(checkpoint, "float32", options, words))


def test_prefixes_steps_and_tokens(tmp_path):
    model, steps = opened(saved(tmp_path)[0]), []
    found = found_in(model, prefixes=[[7, 8], [9, 1], [1, 1], [30, 1]], each_step=steps.append)
    for sentence, prefix in zip(found, ([7, 8], [9], [], [30]), strict=True):
        assert sentence[0].tokens[: len(prefix)].tolist() == prefix
    assert steps[0] == 1 and steps == sorted(steps)
    assert found_in(model, sources=[]) == []
    with pytest.raises(IndexError, match="expected 0 to 39"):
        found_in(model, sources=[[40, 2]])


def test_a_copy_is_of_the_same_model_or_refused(tmp_path, monkeypatch):
    """A pickled model reads its file again, which may have been replaced meanwhile."""
    file, checkpoint = saved(tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    model = opened(Path("model.safetensors"))
    expected, stored = found_in(model), pickle.dumps(model)
    monkeypatch.chdir(tmp_path)
    file.touch()
    assert_equal(found_in(pickle.loads(stored)), expected)
    before, config = file.read_bytes(), (tmp_path / "model/config.json").read_text()
    name = "encoder.layers.0.fc1.bias"
    write_model(file.parent, replace(checkpoint, model={**checkpoint.model, name: checkpoint.model[name] + 1e-6}))
    os.utime(file, ns=(0, 0))
    with pytest.raises(ValueError, match="model.safetensors was replaced since the model was loaded: load the mod"):
        pickle.loads(stored)
    file.write_bytes(before)
    (tmp_path / "model/config.json").write_text(config.replace('"dropout": 0.1', '"dropout": 0.2'))
    with pytest.raises(ValueError, match="model.safetensors was replaced since the model was loaded"):
        pickle.loads(stored)
    assert_equal(found_in(model), expected)  # holds nothing of the file
    file.unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        pickle.loads(stored)


def test_parameters_are_read_one_by_one(tmp_path):
    """A file that was replaced after its header was read is refused, and its floats have the stored values."""
    file, checkpoint = saved(tmp_path)
    stored, content = ModelFile(file), file.read_bytes()
    with stored.parameters() as arrays:
        assert arrays.shapes == checkpoint.shapes
        for name, value in checkpoint.model.items():
            assert np.array_equal(arrays.read(name), value.numpy())
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-4]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="checksum|damaged"), stored.parameters() as arrays:
            for name in checkpoint.model:
                arrays.read(name)


def test_threads_share_a_model(tmp_path):
    """Sources of up to 1,500 tokens from 8 threads, whose tables of positions grow while others read them."""
    lengths = [3, 1500, 40, 7, 700, 256, 257, 12, 90, 1100, 5, 300, 31, 900, 2, 120]
    options = SearchOptions(beam=2, max_length_a=0.1, max_length_b=4, min_length=4)

    def translated(model, length):
        source = [4 + (7 * position + length) % 36 for position in range(length - 1)] + [2]
        found = found_in(model, options, [source, source[length // 2 :]])
        return [(each[0].tokens.tolist(), each[0].score) for each in found]

    file, _ = saved(tmp_path)
    alone, shared = opened(file), opened(file)
    expected = [translated(alone, length) for length in lengths]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda length: translated(shared, length), lengths)) == expected
