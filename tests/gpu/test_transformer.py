"""The Transformer and its search on a GPU, against the CPU."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from rskip.transformer import Transformer, TransformerConfig
from rskip.translation import Translator

SENTENCES = ["A dog runs through the tall grass.", "Two men.", "A woman in a red dress is singing on a stage."]
LIMITS = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 1e-1}
CONNECTIONS = ["1xskip+ln", "2rskip+ln", "sas", "prenorm+ln"]  # in each type
OTHERS = ["wskip+ln", "askip+ln", "highway", "deepnorm", "admin", "b2t", "residual_dual", "siamese", "keel", "mixln",
          "sandwich", "periln", "lns", "rezero", "layerscale+ln", "laurel+ln", "hyper", "mhc", "denseformer", "attnres",
          "mhc_lite", "x0", "gpas", "orthogonal+ln", "ngpt", "ddl", "mudd", "frac",
          "subln", "normformer", "hybridnorm"]  # fmt: skip


def build(connection: str) -> Transformer:
    torch.manual_seed(0)
    sizes = {"embed_dim": 64, "ffn_embed_dim": 128, "attention_heads": 4, "layers": 2, "connection": connection}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    # The derivative of ReLU jumps at 0: in float16, rounding then changes single gradients by up to 4 %.
    config = TransformerConfig(source_vocabulary=50, target_vocabulary=50, activation_fn="gelu", **sides)
    return Transformer(config).eval()


@pytest.mark.parametrize("left", [False, True], ids=["", "prefixes padded on the left"])
@pytest.mark.parametrize(
    ("connection", "dtype"),
    [*((each, dtype) for each in CONNECTIONS for dtype in LIMITS), *((each, torch.float32) for each in OTHERS)],
)
def test_logits_and_gradients(connection, dtype, left, gpu):
    model = build(connection).to(dtype)
    source, prefix = torch.randint(4, 50, (2, 5, 12))
    source[1, 7:] = source[2, :3] = 1
    if left:
        prefix[0, :2] = 1
    exact = copy.deepcopy(model).double()
    expected = exact(source, prefix)
    found = model.to(gpu)(source.to(gpu), prefix.to(gpu))
    for logits in (expected, found):
        logits.square().mean().backward()
    pairs = [(expected, found), *((one.grad, other.grad) for one, other in zip(
        exact.parameters(), model.parameters(), strict=True
    ))]  # fmt: skip
    for one, other in pairs:
        limit = LIMITS[dtype] * max(one.abs().max().item(), 1e-3)
        torch.testing.assert_close(other.detach().cpu().double(), one.detach(), rtol=0, atol=limit)


@pytest.mark.parametrize("name", ["multi30k_en_de/1xskip_ln", "multi30k_en_de/2rskip_ln", "multi30k_en_de/sas"])
@pytest.mark.parametrize(
    "settings", [{}, {"beam": 1}, {"beam": 5, "nbest": 5}, {"no_repeat_ngram": 2}, {"max_tokens": 1}], ids=str
)
def test_texts_are_those_of_the_cpu(name, settings, root: Path, gpu):
    translators = [Translator.from_pretrained(root / "checkpoints" / name, device=device) for device in ("cpu", gpu)]
    expected, found = (each.translate(SENTENCES, **settings) for each in translators)
    for one, other in zip(expected, found, strict=True):
        assert [each.text for each in other.hypotheses] == [each.text for each in one.hypotheses]
        scores = [each.score for each in one.hypotheses]
        assert [each.score for each in other.hypotheses] == pytest.approx(scores, abs=1e-4)
