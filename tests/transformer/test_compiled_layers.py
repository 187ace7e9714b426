"""Layers under torch.compile: one graph a kind, whatever the lengths, and the same numbers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

from rskip.transformer.stack import compile_layers


@pytest.mark.skipif(torch.__version__ < "2.7", reason="PyTorch 2.6 breaks the graph where it asks for autocast")
@pytest.mark.parametrize("connection", ["2rskip+ln", pytest.param("sas", marks=pytest.mark.slow)], indirect=True)
def test_each_kind_of_layer_is_one_graph(build, connection):
    torch.compiler.reset()
    counters.clear()
    model = build(connection, dropout=0.0).train()
    compiled, seen = copy.deepcopy(model), CompileCounter()
    compile_layers(compiled.encoder.layers, compiled.decoder.layers, backend=seen)
    for source_length, length in ((7, 5), (9, 4), (6, 8)):
        source, prefix = torch.randint(4, 23, (3, source_length)), torch.randint(4, 29, (3, length))
        source[0, 5:] = 1
        expected, found = model(source, prefix), compiled(source, prefix)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        expected.sum().backward(), found.sum().backward()
    for one, other in zip(model.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-9, atol=1e-9)
    assert not counters["graph_break"]
    assert seen.frame_count == 2
    assert compiled.state_dict().keys() == model.state_dict().keys()
    torch.compiler.reset()
