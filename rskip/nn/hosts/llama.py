"""Hugging Face's Llama, and the models whose blocks are copies of its block: pre-norm attention and feed-forward."""

from __future__ import annotations

from typing import Any

from rskip.connections import State
from rskip.nn.hosts.host import Host, register_host
from rskip.nn.hosts.transformers_model import TransformersBlock, check_model, finish

# The module of each model, and the name of its block before "DecoderLayer".
MODELS = {
    "arcee": "Arcee",
    "cwm": "Cwm",
    "deepseek_v3": "DeepseekV3",
    "ernie4_5": "Ernie4_5",
    "gemma": "Gemma",
    "glm": "Glm",
    "glm4_moe": "Glm4Moe",
    "llama": "Llama",
    "ministral": "Ministral",
    "mistral": "Mistral",
    "olmoe": "Olmoe",
    "qwen2": "Qwen2",
    "qwen2_moe": "Qwen2Moe",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3Moe",
    "seed_oss": "SeedOss",
    "smollm3": "SmolLM3",
    "starcoder2": "Starcoder2",
}


class LlamaBlock(TransformersBlock):
    """The forward of `LlamaDecoderLayer`. The models call it with names, so the rest goes to the attention as it is."""

    def forward(self, hidden_states: State, attention_mask: Any = None, position_ids: Any = None, **kwargs: Any) -> Any:
        block: Any = self

        def attention(given: Any) -> Any:
            return block.self_attn(
                hidden_states=given, attention_mask=attention_mask, position_ids=position_ids, **kwargs
            )

        state = self.residuals.attention(self.enter(hidden_states), attention)
        return self.leave(self.residuals.ffn(state, block.mlp))


def _register(module: str, name: str) -> None:
    path = f"transformers.models.{module}.modeling_{module}.{name}"
    block = f"{path}DecoderLayer"
    register_host(
        Host(
            name=name,
            block=block,
            adapted=LlamaBlock,
            sources=(f"{block}.forward",),
            digests={"5.24.0": "341ecfc1e113e8e3"},
            norms={"attention": "input_layernorm", "ffn": "post_attention_layernorm"},
            features=lambda block: block.input_layernorm.weight.shape[0],
            final_norms={f"{path}Model.layers": ("norm",)},
            check_model=check_model,
            stack="decoder",
            finish=finish,
        )
    )


for _module, _name in MODELS.items():
    _register(_module, _name)
