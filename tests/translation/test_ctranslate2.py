"""Models in CTranslate2's format translate as ours do."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from rskip.text import Dictionary
from rskip.transformer import Transformer, TransformerConfig
from tests.checkpoint.conftest import both

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra ct2")
from rskip.translation.ctranslate2_model import write_ctranslate2  # noqa: E402

VARIANTS: dict[str, dict[str, Any]] = {
    "prenorm": {"encoder_connection": "prenorm+ln", "decoder_connection": "prenorm+ln"},
    "mixed": {
        "encoder_connection": "1xskip+ln:branch_scale=3",
        "decoder_connection": "prenorm+ln",
        "share_decoder_input_output_embed": True,
    },
    "as Marian": {"output_bias": True, "start": "begin", "activation_fn": "swish"},
    "bart-like": {
        "layernorm_embedding": True, "no_scale_embedding": True, "encoder_learned_pos": True,
        "decoder_learned_pos": True, "activation_fn": "gelu", "max_source_positions": 40, "max_target_positions": 120,
    },
    "tanh-gelu": {"activation_fn": "gelu_accurate", "encoder_connection": "2xskip+ln", "decoder_layers": 1},
    "swish": {"activation_fn": "swish", "encoder_embed_dim": 48, "encoder_layers": 3},
    "no-positions": {"activation_fn": "tanh", "no_token_positional_embeddings": True, "decoder_attention_heads": 2},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_probabilities_of_a_random_model(variant, tmp_path):
    torch.manual_seed(0)
    source, target = Dictionary(f"s{index}" for index in range(40)), Dictionary(f"t{index}" for index in range(50))
    sides = both(embed_dim=32, ffn_embed_dim=64, attention_heads=4, layers=2)
    config = TransformerConfig(len(source), len(target), **{**sides, **VARIANTS[variant]})
    model = Transformer(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.1)
        elif "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        else:
            nn.init.normal_(parameter, std=0.4)
    write_ctranslate2(model, tmp_path / "model", source=source, target=target)
    translator = ctranslate2.Translator(str(tmp_path / "model"), compute_type="float32", intra_threads=1)

    generator = random.Random(1)
    pairs = [
        [[generator.choice(each.tokens[4:]) for _ in range(generator.randint(1, 35))] for each in (source, target)]
        for _ in range(20)
    ]
    start = Dictionary.bos_index if config.start == "begin" else Dictionary.eos_index
    scores = translator.score_batch([words for words, _ in pairs], [words for _, words in pairs])
    for (sentence, translation), theirs in zip(pairs, scores, strict=True):
        tokens, prefix = source.encode_line(" ".join(sentence)), target.encode_line(" ".join(translation))
        logits = model(torch.tensor([tokens]), torch.tensor([[start, *prefix[:-1]]]))
        ours = logits.log_softmax(-1)[0].gather(1, torch.tensor(prefix)[:, None]).squeeze(1)
        # its gelu and tanh differ a little
        torch.testing.assert_close(torch.tensor(theirs.log_probs), ours, rtol=0, atol=1e-3)
        assert ours.std() > 0.5 or len(ours) < 5


def small(**settings: Any) -> Transformer:
    return Transformer(TransformerConfig(8, 8, encoder_layers=1, decoder_layers=1, **settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decoder_connection": "2rskip+ln"}, "2rskip+ln (norm₂(x + norm₁(x + f)))"),
        ({"encoder_connection": "sas"}, "sas (αx + βf"),
        ({"activation_fn": "linear"}, "no activation 'linear', only relu"),
    ],
)
def test_what_it_can_not_compute_is_refused(settings, message, tmp_path):
    dictionary = Dictionary("abcd")
    with pytest.raises(ValueError) as error:
        write_ctranslate2(small(**settings), tmp_path / "model", source=dictionary, target=dictionary)
    assert message in str(error.value) and "rskip translate" in str(error.value)
    assert not (tmp_path / "model").exists()


def test_a_token_that_comes_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has 'a' twice"):
        write_ctranslate2(small(), tmp_path / "model", source=Dictionary("abcd"), target=Dictionary("abca"))
