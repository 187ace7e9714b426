"""DeepSeek-V4, Hy4, Qwen4-Exp and Inkling 2 of transformers: their connection is told, and can be replaced."""

from __future__ import annotations

import copy
import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rskip.analysis.blocks import residual_blocks
from rskip.analysis.streams import StreamRecorder
from rskip.connections import StackConnection
from rskip.nn import adapt, adaptation, from_pretrained, own_specs
from rskip.settings.errors import SettingError

pytest.importorskip("transformers.models.inkling2", reason="needs transformers 5.24")

TOKENS = torch.randint(3, 61, (2, 7), generator=torch.Generator().manual_seed(0))
SIZES = {
    "vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2,
    "num_experts_per_tok": 2, "moe_intermediate_size": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "head_dim": 8,
}  # fmt: skip
INDEXER: dict[str, Any] = {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "q_lora_rank": 8, "hc_eps": 1e-3}
ROTATION = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}
MODELS: dict[str, tuple[str, str, dict[str, Any], str]] = {  # module, configuration and class, settings, spec
    "deepseek_v4": ("DeepseekV4Config", "DeepseekV4ForCausalLM", {
        **INDEXER, "n_routed_experts": 4, "num_key_value_heads": 1, "o_groups": 2, "o_lora_rank": 4,
        "sliding_window": 4, "partial_rotary_factor": 0.5, "max_position_embeddings": 64,
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
    }, "mhc+rms:exit=head,gate_eps=0.001,sinkhorn_eps=0.001,start=deepseek"),
    "hy_v4": ("HYV4Config", "HYV4ForCausalLM", {
        **INDEXER, "n_routed_experts": 4, "intermediate_size": 24, "kv_lora_rank": 8, "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 4, "v_head_dim": 8, "hc_magnitude": 1.5,
    }, "mhc+rms:exit=head,gate_eps=0.001,magnitude=1.5,residual=identity,start=hy4"),
    "qwen4_exp": ("Qwen4ExpTextConfig", "Qwen4ExpForCausalLM", {
        "num_experts": 4, "shared_expert_intermediate_size": 8, "hc_lowrank": 3, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "indexer_n_heads": 2,
        "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 4, "indexer_compress_ratio": 2,
        "rope_parameters": ROTATION,
    }, "gated_residual:rank=3"),
    "inkling2": ("Inkling2TextConfig", "Inkling2ForCausalLM", {
        "n_routed_experts": 4, "swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_head_dim": 8,
        "sliding_window_size": 4, "d_rel": 4, "rel_extent": 8, "unpadded_vocab_size": 61,
        "n_layers_per_attn_res_block": 2, "layer_types": ["hybrid_sliding", "hybrid"] * 2,
    }, "attnres+rms:layers=2,queries=3,values=rms"),
}  # fmt: skip
EMBEDDINGS = {"ple_layer_ids": [2], "ple_embed_dim": 16, "ngram_vocab_size_base": 97, "split_ngram_parts": 1}


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    monkeypatch.setattr(Tensor, "float", Tensor.double)  # their code converts to float32; their norms still do


@pytest.fixture(params=MODELS)
def name(request) -> str:
    return request.param


def build(name: str, **settings: Any) -> Any:
    """A small model in float64, with drawn values."""
    config, kind, own, _ = MODELS[name]
    module = f"transformers.models.{name}"
    torch.manual_seed(0)
    configured = getattr(importlib.import_module(f"{module}.configuration_{name}"), config)(**SIZES | own | settings)
    configured._experts_implementation = "eager"  # the others take no float64
    model = getattr(importlib.import_module(f"{module}.modeling_{name}"), kind)(configured).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def logits(model: Any) -> Tensor:
    found: Tensor = model(TOKENS, use_cache=False).logits
    return found


def gradients(model: Any) -> dict[str, Tensor]:
    model.zero_grad()
    model(TOKENS, labels=TOKENS, use_cache=False).loss.backward()
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


def test_its_own_connection_computes_the_same(name, tmp_path: Path):
    model = build(name)
    expected, wanted = logits(model), gradients(model)
    assert own_specs(model) == {"model": MODELS[name][3]}
    adapt(model, MODELS[name][3])
    torch.testing.assert_close(logits(model), expected, rtol=0, atol=1e-6)
    found = gradients(model)
    made: Any = adaptation(model)
    assert made.own == MODELS[name][3] and len(made.stacks) == 1
    derived = ("gain", "query", "attention.norm.weight")  # 1 + weight, a query without √C, and a gain that they lack
    assert all(each.endswith(derived) for each in made.new)
    same = [each for each in found if made.kept.get(each, each) in wanted]
    assert len(same) >= len(wanted) - len(made.dropped) - len(made.new)
    for each in same:
        torch.testing.assert_close(found[each], wanted[made.kept.get(each, each)], rtol=1e-4, atol=1e-6)

    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(logits(twin), logits(model))
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(type(model), tmp_path, dtype=torch.float64, experts_implementation="eager").eval()
    torch.testing.assert_close(logits(loaded.double()), logits(model), rtol=0, atol=1e-5)  # some load in float32


@pytest.mark.parametrize("spec", ["prenorm+rms", "1xskip+ln", "mhc:reads=previous", "attnres", "hyper+rms:exit=head"])
def test_another_connection_in_its_place(name, spec):
    model = build(name)
    expected = logits(model)
    adapt(model, spec)
    assert not torch.allclose(logits(model), expected)
    first = model(TOKENS[:, :5], use_cache=True)
    step = model(TOKENS[:, 5:6], cache=first.cache, use_cache=True).logits[:, 0]
    torch.testing.assert_close(step, model(TOKENS[:, :6], use_cache=False).logits[:, 5], rtol=0, atol=1e-6)
    states = model(TOKENS, output_hidden_states=True, use_cache=False).hidden_states
    assert {state.shape for state in states[1:]} == {(2, 7, 16)}
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    before = {each for each in gradients(model) if "residuals" in each}
    assert before == {each for each, _ in model.named_parameters() if "residuals" in each}
    recorder = StreamRecorder(
        residual_blocks(model, streams=True), [each for each in model.modules() if isinstance(each, StackConnection)]
    )
    with torch.no_grad(), recorder.recording():
        logits(model.eval())
    rows = recorder.stream_rows()
    assert len(rows) == 8 and (spec in ("prenorm+rms", "1xskip+ln") or all(row["effective_rank"] >= 1 for row in rows))


def test_qwen_adds_embeddings_to_streams():
    model = build("qwen4_exp", **EMBEDDINGS)
    expected, with_ = logits(model), copy.deepcopy(model)
    adapt(model, "gated_residual:rank=3")
    torch.testing.assert_close(logits(model), expected, rtol=0, atol=1e-6)
    assert logits(adapt(copy.deepcopy(with_), "mhc")).isfinite().all()
    with pytest.raises(SettingError, match="a connection with streams"):
        adapt(with_, "prenorm+rms")
    assert torch.equal(logits(with_), expected)


def test_it_is_adapted_once_and_tells_what_would_change(capsys):
    model = build("hy_v4")
    adapt(model, "mhc", dry_run=True)
    assert "in place of mhc+rms" in capsys.readouterr().out and adaptation(model) is None
    with pytest.raises(SettingError, match="queries"):
        adapt(model, "attnres:queries=3")
    adapt(model, "mhc")
    with pytest.raises(SettingError, match="already adapted"):
        adapt(model, "hyper")
