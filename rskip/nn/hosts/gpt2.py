"""Hugging Face's GPT-2: pre-norm attention and feed-forward, and cross-attention if the config asks for it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rskip.connections import State
from rskip.nn.hosts.host import Host, register_host
from rskip.nn.hosts.transformers_model import TransformersBlock, check_model, finish

BLOCK = "transformers.models.gpt2.modeling_gpt2.GPT2Block"


class GPT2Block(TransformersBlock):
    """The forward of `GPT2Block`; dropout stays part of the branches."""

    def forward(
        self,
        hidden_states: State,
        cache: Any = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        use_cache: bool | None = False,
        **kwargs: Any,
    ) -> Any:
        block: Any = self
        cache = kwargs.pop("past_key_values", cache)
        shared = {"cache": cache, "attention_mask": attention_mask}
        state = self.enter(hidden_states)
        state = self.residuals.attention(state, block.attn, **shared, use_cache=use_cache, **kwargs)
        if encoder_hidden_states is not None:
            state = self.residuals.cross_attention(
                state,
                block.crossattention,
                **shared,
                encoder_hidden_states=encoder_hidden_states,
                encoder_attention_mask=encoder_attention_mask,
            )
        return self.leave(self.residuals.ffn(state, block.mlp))


register_host(
    Host(
        name="GPT-2",
        block=BLOCK,
        adapted=GPT2Block,
        sources=(f"{BLOCK}.forward",),
        digests={"5.24.0": "7d40e272832b4422"},
        norms={"attention": "ln_1", "cross_attention": "ln_cross_attn", "ffn": "ln_2"},
        features=lambda block: block.ln_1.normalized_shape[0],
        final_norms={"transformers.models.gpt2.modeling_gpt2.GPT2Model.h": ("ln_f",)},
        check_model=check_model,
        stack="decoder",
        finish=finish,
    )
)
