"""Streams and depth: exact values of hand-made weights, a planted collapse, and weights against what blocks read."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn

from rskip.analysis.analyses import depth, streams
from rskip.analysis.blocks import residual_blocks
from rskip.analysis.figures import chart
from rskip.analysis.streams import StreamRecorder, effective_rank, part_similarity
from rskip.analysis.tables import text_form
from rskip.connections import Connection, Mixing, StackConnection, mixing_of, register_connection
from rskip.formulas import registry
from rskip.tasks.subject import Batch, Subject
from tests.connections.stack import FEATURES, Stack
from tests.connections.test_mixing import SPECS

R = torch.tensor([[0.5, 0.25], [0.5, 0.75]])  # R_jk, the weight of stream j in stream k


def recorder_of(model: nn.Module) -> StreamRecorder:
    stacks = [module for module in model.modules() if isinstance(module, StackConnection)]
    return StreamRecorder(residual_blocks(model, streams=True), stacks)


def subject_of(model: nn.Module, *inputs: torch.Tensor, label: str = "own") -> Subject:
    batches = [Batch(partial(lambda x: model(x).square().sum((1, 2)), x)) for x in inputs]
    return Subject(label=label, depth=1, model=model, trained=False, data="noise", batches=lambda _: iter(batches))


def two_streams() -> Stack:
    """Two layers with R and with its double, α (1, 0) and (0, 1) by turns, β (1, -1)."""
    model = Stack("hyper:streams=2,form=static", layers=2)
    with torch.no_grad():
        for number, connection in enumerate(model.connections):
            connection.stream_weights.copy_(R if number < 2 else 2 * R)
            connection.output_weights.copy_(torch.tensor([1.0, -1.0]))
    return model


class Swapped(Connection):
    """(a, b) -> (b, a + F(a + b)), a reversible network's step."""

    def before(self, state):
        return state[0] + state[1], state

    def after(self, kept, f):
        return kept[1], kept[0] + f

    def as_mixing(self, state, f):
        return Mixing(reads=torch.ones(2), carries=torch.eye(2).flip(0), adds=torch.tensor([0.0, 1.0]))


class Padded(StackConnection):
    """Begins with (x, 0)."""

    def __init__(self, features):
        super().__init__()

    def enter(self, x):
        return x, torch.zeros_like(x)

    def leave(self, state):
        return state[0] + state[1]


def test_a_part_of_zeros_is_not_the_stacks_input(monkeypatch):
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    monkeypatch.setattr(Swapped, "stack", Padded)
    register_connection("swapped", source="a test")(Swapped)
    inputs = torch.randn(3, 4, FEATURES, dtype=torch.float64)
    rows = depth([subject_of(Stack("swapped", layers=2), inputs)], examples=1).rows
    assert [row["weight"] for row in rows if row["over"] == "sources" and row["index"] == 0] == [1, 1, 1, 1]


def test_the_product_of_the_mixing_matrices():
    rows = streams([subject_of(two_streams(), torch.randn(3, 4, FEATURES, dtype=torch.float64))], examples=1).rows
    product = torch.eye(2)
    for row, each in zip(rows, (R, R, 2 * R, 2 * R), strict=True):
        product = each.T @ product
        sums = torch.cat([product.sum(0), product.sum(1)])
        assert row["row_gain"] == pytest.approx(product.sum(1).max().item(), rel=1e-4)
        assert row["column_gain"] == pytest.approx(product.sum(0).max().item(), rel=1e-4)
        assert row["from_stochastic"] == pytest.approx((sums - 1).abs().max().item(), rel=1e-4)
        assert row["from_identity"] == pytest.approx((product - torch.eye(2)).norm().item(), rel=1e-4)
    first = rows[0]
    assert (first["row_gain"], first["column_gain"], first["from_stochastic"]) == (1.0, 1.25, 0.25)
    assert first["from_identity"] == pytest.approx(math.sqrt(0.25 + 0.0625 + 0.25 + 0.0625), rel=1e-4)


def test_the_weights_of_parts_and_sources():
    rows = depth([subject_of(two_streams(), torch.randn(3, 4, FEATURES, dtype=torch.float64))], examples=1).rows
    found = {(row["block"], row["over"], row["index"]): row["weight"] for row in rows}
    assert [found[2, "parts", part] for part in (0, 1)] == [0.0, 1.0]
    # h after block 1: (x·(R_00 + R_10) + f, x·(R_01 + R_11) - f); block 2 reads the second stream, block 3 the first
    assert [found[1, "sources", 0]] == [1.0]
    assert [found[2, "sources", source] for source in (0, 1)] == [1.0, -1.0]
    assert [found[3, "sources", source] for source in (0, 1, 2)] == [1.0, 0.0, 1.0]
    assert all(row["std"] == 0 for row in rows)
    drawn = chart(depth([subject_of(two_streams(), torch.randn(3, 4, FEATURES, dtype=torch.float64))], examples=1))
    assert (drawn.x, drawn.y, len(drawn.rows)) == ("block", "source", 1 + 2 + 3 + 4)


def test_similarity_and_rank():
    plane = torch.tensor([[[3.0, 0.0, 0.0], [0.0, 3.0, 0.0]], [[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]]]).double()
    assert part_similarity(plane).tolist() == pytest.approx([0.0, 1.0])
    assert effective_rank(plane).tolist() == pytest.approx([2.0, 1.0])
    assert effective_rank(torch.diag(torch.tensor([3.0, 1.0])).double()).item() == pytest.approx(
        math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    )
    assert effective_rank(torch.zeros(2, 3)).isnan()


def test_a_planted_collapse_is_found():
    model = Stack("hyper:streams=4", layers=3)
    with torch.no_grad():
        for number, connection in enumerate(model.connections):
            connection.output_weights.copy_(torch.tensor([2.0, -3.0, 1.0, -1.0]).roll(number))
    x = torch.randn(2, 5, FEATURES, dtype=torch.float64)
    healthy = streams([subject_of(model, x)], examples=1)
    assert all(row["stream_similarity"] < 0.9 and row["effective_rank"] > 1.2 for row in healthy.rows)
    assert "alike" not in text_form(healthy)
    with torch.no_grad():
        for connection in list(model.connections)[3:]:  # every stream becomes the mean, and gains the same
            connection.stream_weights.fill_(0.25)
            connection.output_weights.fill_(1)
    found = streams([subject_of(model, x)], examples=1)
    assert found.rows[:3] == healthy.rows[:3]
    for row in found.rows[3:]:
        assert row["stream_similarity"] == 1.0 and row["effective_rank"] == pytest.approx(1, abs=1e-4)
    assert "own, connections: the streams are alike (cosine 0.99 or more) from block 4, connections.3, on" in (
        text_form(found)
    )


@pytest.mark.parametrize("spec", [spec for spec in SPECS if all(map(mixing_of, Stack(spec).connections))])
@torch.no_grad()
def test_a_blocks_input_is_its_sources_in_these_weights(spec):
    """With one position, the mean over positions is the weight itself."""
    model = Stack(spec).draw()
    x = torch.randn(1, 1, FEATURES, dtype=torch.float64)
    given, outputs = [], [x]
    recorder = recorder_of(model)

    def run(block, state, number):
        connection = model.connections[number]
        read, kept = connection.before(state)
        given.append(read)
        outputs.append(torch.tanh(read @ model.branches[number]))
        return connection.after(kept, outputs[-1])

    with recorder.recording():
        model(x, run)
    for block, read in zip(recorder.blocks, given, strict=True):
        rows = [row for row in recorder.depth_rows() if row["block"] == block.number and row["over"] == "sources"]
        assert [row["index"] for row in rows] == list(range(block.number))
        u = sum(row["weight"] * output for row, output in zip(rows, outputs, strict=False))
        norm = getattr(block.connection, "norm", None)
        expected = u if norm is None else norm(u)
        torch.testing.assert_close(read, expected, rtol=1e-5, atol=1e-5)


def test_translation_models(few_pairs):
    def rows(analysis, spec, size):
        options = {"task": "translation", "depths": [2], "examples": 4, "data": str(few_pairs), "batch_size": size}
        return analysis([spec], **options).rows

    for analysis, spec in ((streams, "mhc"), (depth, "attnres:blocks=2"), (streams, "siamese")):
        one, four = rows(analysis, spec, 1), rows(analysis, spec, 4)
        for a, b in zip(one, four, strict=True):
            same = {key: pytest.approx(value, rel=1e-3, abs=1e-4) for key, value in a.items() if type(value) is float}
            assert a | same == b
    mixed = rows(streams, "mhc", 4)
    assert all(row["from_stochastic"] < 1e-3 and row["row_gain"] == pytest.approx(1, abs=1e-3) for row in mixed)
    assert rows(streams, "siamese", 4)[0]["row_gain"] is None
    first = [row["block"] for row in rows(depth, "hyper", 4) if row["over"] == "sources" and row["index"] == 0]
    assert first == list(range(1, 11))
    decoders = [row["index"] for row in rows(depth, "hyper", 4) if row["over"] == "sources" and row["block"] == 6]
    assert decoders == [0, 5], "a decoder's stack begins with its own input"


def test_depth_of_image_models(few_images):
    found = depth(["2xskip"], depths=[8], examples=2)
    weights = [row["weight"] for row in found.rows if row["over"] == "sources"]
    assert weights == [1, 2, 1, 4, 2, 1]
    assert "2xskip" in text_form(found)


def test_what_cannot_be_analysed(few_images):
    for analysis, spec, problem in (
        (streams, "1xskip", "1xskip passes on only x: expected a connection with streams"),
        (depth, "1xskip+ln", "1xskip\\+ln: xskip is not a weighted sum of earlier outputs"),
    ):
        with pytest.raises(ValueError, match=problem):
            analysis([spec], depths=[8], examples=2)
    with pytest.raises(ValueError, match="^hyper passes on more than x: expected"):
        residual_blocks(two_streams())


def test_the_connections_are_as_before():
    model = two_streams()
    before = [dict(vars(module)) for module in model.modules()]
    streams([subject_of(model, torch.randn(1, 2, FEATURES, dtype=torch.float64))], examples=1)
    assert all(was.keys() == vars(module).keys() for was, module in zip(before, model.modules(), strict=True))
    assert all(a < b for a, b in pairwise(block.number for block in residual_blocks(model, streams=True)))
