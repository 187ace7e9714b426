"""ONNX graphs translate as the model that they were exported from."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from rskip.connections import Connection, register_connection
from rskip.files.checksum import sha256_file
from rskip.formulas import registry
from rskip.text import Dictionary, Tokenizer, TokenText
from rskip.transformer import Transformer, TransformerConfig
from rskip.translation import Translation, Translator, Workers
from tests.checkpoint.conftest import both

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
pytest.importorskip("onnxscript", reason="needs the extra onnx")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rskip.translation.onnx_decoder import OnnxTransformer  # noqa: E402
from rskip.translation.onnx_model import check_equal, quantise, write_onnx  # noqa: E402
from rskip.translation.onnx_settings import read_settings  # noqa: E402

WORDS = [f"w{number}" for number in range(20)]
SOURCE, TARGET = Dictionary([*WORDS, "w3"]), Dictionary(WORDS)
SEARCH: dict[str, Any] = {"beam": 3, "nbest": 3, "token_scores": True, "attention": True, "max_length_b": 6}
SENTENCES = ["w1 w2 w3", "w7", "w4 w4 w5 w6 w1 w2 w19 w18", "w9 w8 w7 w6 w5", "unknown w2", " ", "w3 w1"]


def tiny(**settings: Any) -> Translator:
    torch.manual_seed(5)
    sizes = both(embed_dim=16, ffn_embed_dim=24, attention_heads=2, layers=1)
    config = TransformerConfig(len(SOURCE), len(TARGET), **{**sizes, **settings})
    model = Transformer(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.3 * torch.randn(parameter.shape))
    return Translator(model, Tokenizer(TokenText("a", "b"), SOURCE, TARGET))


def exported(translator: Translator, folder: Path, **settings: Any) -> Path:
    assert isinstance(translator.model, Transformer)
    folder.mkdir(exist_ok=True)
    write_onnx(translator.model, folder, translator.tokenizer, **settings)
    return folder


def assert_alike(ours: list[Translation], theirs: list[Translation]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert (one.source, one.notes, one.source_tokens) == (other.source, other.notes, other.source_tokens)
        for left, right in zip(one.hypotheses, other.hypotheses, strict=True):
            assert (left.tokens, left.alignment) == (right.tokens, right.alignment)
            assert left.score == pytest.approx(right.score, abs=1e-4)
            assert left.token_scores == pytest.approx(right.token_scores, abs=1e-4)
            if left.attention is not None:
                numpy.testing.assert_allclose(left.attention, right.attention, rtol=0, atol=1e-4)


VARIANTS: dict[str, dict[str, Any]] = {
    "postnorm": {"encoder_connection": "sas", "decoder_connection": "wskip+rms"},
    "inner-norms": {
        "encoder_connection": "normformer", "decoder_connection": "hybridnorm", "value_residual": "learned",
        "encoder_layers": 2, "decoder_layers": 2, "output_bias": True, "start": "begin", "decoder_embed_dim": 24,
        "decoder_attention_heads": 3, "activation_fn": "gelu_accurate", "no_token_positional_embeddings": True,
    },
    "prenorm": {
        "encoder_connection": "hyper:streams=2", "decoder_connection": "sas:host=prenorm,gamma=free",
        "encoder_learned_pos": True, "decoder_learned_pos": True, "max_source_positions": 10,
        "max_target_positions": 7, "share_decoder_input_output_embed": True, "layernorm_embedding": True,
        "no_scale_embedding": True,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def translator() -> Translator:
    return tiny(**VARIANTS["postnorm"])


@pytest.fixture(scope="module")
def folder(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(translator, tmp_path_factory.mktemp("onnx") / "model")


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copied"))


def test_no_module_is_built_and_translations_are_the_models(translator, folder, monkeypatch):
    """In batches whose sentences leave early, alone, and in worker processes."""
    for name in ("transformer.build_transformer", "files.read_checkpoint"):
        monkeypatch.setattr(f"rskip.checkpoint.{name}", None)
    graphs = Translator.from_pretrained(folder)
    assert (graphs.source_language, graphs.target_language, graphs.precision) == ("a", "b", "float32")
    assert len({each.text for each in graphs.translate(SENTENCES, **SEARCH)}) >= 6
    for settings in ({}, {"beam": 1, "nbest": 1}, {"max_tokens": 1}, {"prefixes": ["w1 w2", *[None] * 6]}):
        settings = {**SEARCH, **settings}
        assert_alike(translator.translate(SENTENCES, **settings), graphs.translate(SENTENCES, **settings))
    plain = graphs.translate(SENTENCES[:1])[0].hypotheses[0]
    assert plain.attention is plain.token_scores is None
    with Workers(graphs.model, 1) as workers:
        settings = {**SEARCH, "max_tokens": 8}
        found = graphs.translate(SENTENCES, searcher=workers, **settings)
        assert_alike(translator.translate(SENTENCES, **settings), found)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["prenorm", "inner-norms"])
def test_other_connections_and_shapes(variant, tmp_path):
    translator = tiny(**VARIANTS[variant])
    graphs = Translator.from_pretrained(exported(translator, tmp_path / "model"))
    assert_alike(translator.translate(SENTENCES, **SEARCH), graphs.translate(SENTENCES, **SEARCH))
    assert graphs.model.max_positions == translator.model.max_positions


def test_a_graph_of_another_model_is_found_out(translator, folder):
    graphs = OnnxTransformer(folder, read_settings(folder / "onnx.json"))
    check_equal(translator.model, graphs)
    other = tiny(**VARIANTS["postnorm"]).model
    other.decoder.layers[0].fc2.bias[3] += 0.01
    with pytest.raises(ValueError, match="logits differ"):
        check_equal(other, graphs)


def test_beams_and_sentences_can_be_any_number_and_trade_places(translator, folder):
    graphs = OnnxTransformer(folder, read_settings(folder / "onnx.json"))
    source = torch.tensor([[5, 6, 7, 2], [8, 9, 2, 1], [4, 2, 1, 1]])
    states = [(each, each.start(each.encode(source))) for each in (translator.model, graphs)]

    def assert_equal_step(*tokens: list[int]) -> None:
        one, other = (each.step(torch.tensor(tokens), state) for each, state in states)
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)

    def reorder(parents: list[list[int]], sentences: list[int] | None = None) -> None:
        for each, state in states:
            kept: Tensor | None = None if sentences is None else torch.tensor(sentences)
            each.reorder(state, torch.tensor(parents), kept)

    assert_equal_step([2], [2], [2])
    reorder([[0, 0], [0, 0], [0, 0]])
    assert_equal_step([4, 5], [6, 7], [8, 9])
    assert_equal_step([9, 5], [8, 7], [7, 9])  # without a reordering each goes on
    reorder([[1, 0, 1], [0, 0, 1]], sentences=[2, 0])
    assert_equal_step([10, 11, 12], [13, 14, 15])
    reorder([[2]], sentences=[1])
    assert_equal_step([4])


def test_eight_bit_maps(translator, copied):
    before = set(copied.iterdir())
    for name in ("encoder.onnx", "step.onnx"):
        quantise(copied / name)
        with_sum_of(copied, name)
    rewritten(copied, precision="int8")
    assert set(copied.iterdir()) == before
    step = onnx.load(copied / "step.onnx")
    assert [opset.domain for opset in step.opset_import] == [""]
    maps = [node for node in step.graph.node if node.op_type == "MatMulInteger"]
    assert len(maps) == 6 + 1  # of the layer and of the vocabulary
    graphs = Translator.from_pretrained(copied, precision="int8")
    assert graphs.precision == "int8"
    source, tokens = torch.tensor([[5, 6, 7, 2], [8, 9, 10, 2]]), torch.tensor([[2], [2]])
    ours, theirs = (each.step(tokens, each.start(each.encode(source))) for each in (translator.model, graphs.model))
    assert torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten()]))[0, 1] > 0.99
    assert not torch.allclose(ours, theirs, atol=1e-4)


def without(folder: Path, name: str) -> None:
    (folder / name).unlink()


def changed(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)


def rewritten(folder: Path, **values: Any) -> None:
    content = json.loads((folder / "onnx.json").read_text())
    (folder / "onnx.json").write_text(json.dumps({**content, **values}))


def with_sum_of(folder: Path, name: str) -> None:
    files = json.loads((folder / "onnx.json").read_text())["files"]
    rewritten(folder, files={**files, name: sha256_file(folder / name)})


def of_a_later_opset(folder: Path) -> None:
    graph = onnx.load(folder / "step.onnx")
    graph.opset_import[0].version = 999
    onnx.save(graph, folder / "step.onnx")
    with_sum_of(folder, "step.onnx")


def with_another_dictionary(folder: Path) -> None:
    Dictionary(WORDS[:5]).save(folder / "dict.b.txt")
    with_sum_of(folder, "dict.b.txt")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: without(folder, "step.onnx"), "step.onnx is missing"),
        (lambda folder: changed(folder, "encoder.onnx"), "encoder.onnx has the sha256"),
        (lambda folder: rewritten(folder, format=2), "onnx.json has the format 2, but this rskip reads 1"),
        (lambda folder: rewritten(folder, files={"../a": ""}), "onnx.json: files: '../a' is not in the folder"),
        (lambda folder: rewritten(folder, heads=0), "onnx.json: heads is 0: expected a whole number, 1 or more"),
        (of_a_later_opset, "step.onnx can't be opened by onnxruntime"),
        (with_another_dictionary, "the dictionaries belong to another model: the target one has 9 tokens"),
    ],
)
def test_a_damaged_folder_is_one_line(damage, message, copied):
    damage(copied)
    with pytest.raises((ValueError, OSError)) as error:
        Translator.from_pretrained(copied)
    assert message in str(error.value) and str(copied) in str(error.value) and "\n" not in str(error.value)


def test_what_makes_no_sense_is_refused(folder, monkeypatch):
    with pytest.raises(ValueError, match="precision is 'bfloat16': expected float32, as the graphs are"):
        Translator.from_pretrained(folder, precision="bfloat16")
    with pytest.raises(ValueError, match="an ONNX model runs on the CPU, not on cuda:0"):
        Translator.from_pretrained(folder).model.move(torch.device("cuda", 0))
    with pytest.raises(ValueError, match="the model translates a to b, not b to a"):
        Translator.from_pretrained(folder, source_language="b", target_language="a")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ValueError, match=r"needs onnxruntime: install the extra onnx with pip install"):
        Translator.from_pretrained(folder)


class Branching(Connection):
    """Looks at its values, which no graph can."""

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return x + f if bool(f.sum() > 0) else x


@pytest.mark.parametrize(
    ("connection", "reason"), [("branching", "data-dependent"), ("attnres:queries=3", "inputs of their own")]
)
def test_a_connection_that_no_graph_computes_is_refused_in_one_line(connection, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    register_connection("branching", source="a test")(Branching)
    model = tiny(encoder_connection=connection, encoder_layers=1, decoder_layers=1)
    with pytest.raises(ValueError) as error:
        exported(model, tmp_path / "model")
    assert str(error.value).startswith(f"a model of {connection}, 1xskip+ln can't be exported to ONNX: ")
    assert "\n" not in str(error.value) and reason in str(error.value)
