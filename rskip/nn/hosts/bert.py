"""Hugging Face's BERT, and the models whose blocks are copies of its block: post-norm, encoder or decoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rskip.connections import State
from rskip.nn.hosts.host import Host, register_host
from rskip.nn.hosts.transformers_model import TransformersBlock, check_model, finish

# The module of each model, and the name of its block before "Layer".
MODELS = {
    "bert": "Bert",
    "bert_generation": "BertGeneration",
    "camembert": "Camembert",
    "electra": "Electra",
    "ernie": "Ernie",
    "roberta": "Roberta",
    "roc_bert": "RoCBert",
    "xlm_roberta": "XLMRoberta",
}


class BertBlock(TransformersBlock):
    """The forward of `BertLayer` with `BertAttention`, `BertSelfOutput` and `BertOutput`, without their additions."""

    def forward(
        self,
        hidden_states: State,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: Any = None,
        **kwargs: Any,
    ) -> Any:
        block: Any = self
        shared = {"cache": kwargs.pop("past_key_values", cache), **kwargs}
        state = self.residuals.attention(
            self.enter(hidden_states),
            lambda given: _attend(block.attention, given, None, attention_mask, shared),
        )
        if block.is_decoder and encoder_hidden_states is not None:
            state = self.residuals.cross_attention(
                state,
                lambda given: _attend(
                    block.crossattention, given, encoder_hidden_states, encoder_attention_mask, shared
                ),
            )
        return self.leave(self.residuals.ffn(state, self._feed_forward))

    def _feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward branch, in chunks of positions if the config asks for it."""
        block: Any = self
        if block.chunk_size_feed_forward <= 0:
            return self._feed_forward_chunk(x)
        chunks = x.split(block.chunk_size_feed_forward, dim=block.seq_len_dim)
        return torch.cat([self._feed_forward_chunk(chunk) for chunk in chunks], dim=block.seq_len_dim)

    def _feed_forward_chunk(self, x: Tensor) -> Tensor:
        block: Any = self
        y: Tensor = block.output.dropout(block.output.dense(block.intermediate(x)))
        return y


def _attend(
    attention: Any, x: Tensor, encoder_hidden_states: Tensor | None, mask: Tensor | None, shared: dict[str, Any]
) -> Tensor:
    attended, _ = attention.self(x, encoder_hidden_states=encoder_hidden_states, attention_mask=mask, **shared)
    y: Tensor = attention.output.dropout(attention.output.dense(attended))
    return y


def _register(module: str, name: str) -> None:
    path = f"transformers.models.{module}.modeling_{module}.{name}"
    computed = (
        "Layer.forward",
        "Layer.feed_forward_chunk",
        "Attention.forward",
        "SelfOutput.forward",
        "Output.forward",
    )
    register_host(
        Host(
            name=name,
            block=f"{path}Layer",
            adapted=BertBlock,
            sources=tuple(path + each for each in computed),
            digests={"5.24.0": "053ee538fc39f950"},
            parts={
                "attention": f"{path}Attention",
                "attention.output": f"{path}SelfOutput",
                "crossattention": f"{path}Attention",
                "crossattention.output": f"{path}SelfOutput",
                "output": f"{path}Output",
            },
            norms={
                "attention": "attention.output.LayerNorm",
                "cross_attention": "crossattention.output.LayerNorm",
                "ffn": "output.LayerNorm",
            },
            features=lambda block: block.output.dense.out_features,
            post_norm=lambda block: True,
            check_model=check_model,
            finish=finish,
        )
    )


for _module, _name in MODELS.items():
    _register(_module, _name)
