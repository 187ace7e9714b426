"""A stock fairseq Transformer's parameters give a stock fairseq Transformer's logits."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch

from rskip.checkpoint import from_stock, stock_connection, to_stock
from rskip.transformer import Transformer, TransformerConfig

SIZES = {"embed_dim": 32, "ffn_embed_dim": 48, "attention_heads": 4, "layers": 3}


def stock_model(**flags):
    fairseq_models = pytest.importorskip("fairseq.models", reason="needs fairseq: run `rskip setup-fairseq`")
    from fairseq.data import Dictionary

    dictionaries = [Dictionary(), Dictionary()]
    for index in range(60):
        for dictionary in dictionaries[: 1 if flags.get("share_all_embeddings") else 2]:
            dictionary.add_symbol(f"word{index}")
    if flags.get("share_all_embeddings"):
        dictionaries[1] = dictionaries[0]
    else:
        dictionaries[1].add_symbol("one more")
    args = Namespace(arch="transformer", **flags)
    for side in ("encoder", "decoder"):
        for key, value in SIZES.items():
            setattr(args, f"{side}_{key}", value)
    fairseq_models.ARCH_CONFIG_REGISTRY["transformer"](args)
    task = SimpleNamespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[1])
    model = fairseq_models.ARCH_MODEL_REGISTRY["transformer"].build_model(args, task).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model, args, dictionaries


@pytest.mark.parametrize("normalize_before", [False, True], ids=["postnorm", "prenorm"])
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"share_all_embeddings": True},
        {"share_decoder_input_output_embed": True, "encoder_learned_pos": True, "decoder_learned_pos": True},
        {"layernorm_embedding": True, "activation_fn": "gelu", "no_scale_embedding": True},
    ],
    ids=["separate", "shared", "learned-positions", "gelu"],
)
def test_logits(normalize_before, flags):
    stock, args, dictionaries = stock_model(
        encoder_normalize_before=normalize_before, decoder_normalize_before=normalize_before, **flags
    )
    connection = stock_connection(normalize_before=normalize_before)
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in SIZES.items()}
    config = TransformerConfig(
        len(dictionaries[0]),
        len(dictionaries[1]),
        encoder_connection=connection,
        decoder_connection=connection,
        **sides,
        **flags,
    )
    model = Transformer(config).eval()
    model.load_state_dict(from_stock(stock.state_dict()))

    torch.manual_seed(0)
    source = torch.randint(4, 64, (5, 11))
    source[1, :4] = 1  # fairseq pads sources on the left
    prefix = torch.randint(4, 64, (5, 9))
    prefix[2, 6:] = 1
    with torch.no_grad():
        expected, _ = stock(source, source.ne(1).sum(1), prefix)
        ours = model(source, prefix)
    real = prefix.ne(1)
    torch.testing.assert_close(ours[real], expected[real], rtol=0, atol=1e-4)
    assert expected[real].std() > 0.1

    back = to_stock(model.state_dict(), connection=connection)
    for parameter in stock.parameters():  # whatever `back` does not name stays zero and shows
        torch.nn.init.zeros_(parameter)
    stock.load_state_dict(back, strict=False)
    with torch.no_grad():
        again, _ = stock(source, source.ne(1).sum(1), prefix)
    assert torch.equal(again, expected)
