"""torch.nn.TransformerEncoderLayer and TransformerDecoderLayer, and thus nn.Transformer; tested with torch 2.15.

At inference PyTorch computes an encoder layer in one fused kernel (`torch.backends.mha`) and skips padding with nested
tensors. Adapted layers take PyTorch's other path, so their outputs at padding are not 0.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from rskip.connections import State
from rskip.nn.hosts.host import AdaptedBlock, Host, register_host

ENCODER, DECODER = "torch.nn.modules.transformer.TransformerEncoder", "torch.nn.modules.transformer.TransformerDecoder"
ENCODER_LAYER, DECODER_LAYER = f"{ENCODER}Layer", f"{DECODER}Layer"


class TorchEncoderLayer(AdaptedBlock):
    """The forward of `nn.TransformerEncoderLayer` without its fused kernel."""

    def forward(
        self,
        src: State,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> State:
        block: Any = self
        x = src if isinstance(src, Tensor) else src[0]
        if x.is_nested:
            advice = "pass a padded tensor and src_key_padding_mask"
            raise TypeError(f"an adapted TransformerEncoderLayer does not support nested tensors: {advice}")
        of_mask = F._none_or_dtype(src_mask)
        padding = F._canonical_mask(src_key_padding_mask, "src_key_padding_mask", of_mask, "src_mask", x.dtype)
        mask = F._canonical_mask(src_mask, "src_mask", None, "", x.dtype, check_other=False)
        state = self.residuals.attention(self.enter(src), block._sa_block, mask, padding, is_causal=is_causal)
        return self.leave(self.residuals.ffn(state, block._ff_block))


class TorchDecoderLayer(AdaptedBlock):
    """The forward of `nn.TransformerDecoderLayer`."""

    def forward(
        self,
        tgt: State,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> State:
        block: Any = self
        state = self.residuals.attention(
            self.enter(tgt), block._sa_block, tgt_mask, tgt_key_padding_mask, tgt_is_causal
        )
        state = self.residuals.cross_attention(
            state, block._mha_block, memory, memory_mask, memory_key_padding_mask, memory_is_causal
        )
        return self.leave(self.residuals.ffn(state, block._ff_block))


def _without_nested_tensors(model: nn.Module, spec: str) -> None:
    """Turns off nested tensors, which would need the fused kernel."""
    for each in model.modules():
        if isinstance(each, nn.TransformerEncoder) and isinstance(each.layers[0], AdaptedBlock):
            each.use_nested_tensor = False


register_host(
    Host(
        name="torch.nn.TransformerEncoderLayer",
        block=ENCODER_LAYER,
        adapted=TorchEncoderLayer,
        sources=(f"{ENCODER_LAYER}.forward", f"{ENCODER_LAYER}._sa_block", f"{ENCODER_LAYER}._ff_block"),
        digests={"2.15.0": "7546a65d5365f38d"},
        features=lambda layer: layer.self_attn.embed_dim,
        norms={"attention": "norm1", "ffn": "norm2"},
        post_norm=lambda layer: not layer.norm_first,
        final_norms={f"{ENCODER}.layers": ("norm",)},
        finish=_without_nested_tensors,
    )
)
register_host(
    Host(
        name="torch.nn.TransformerDecoderLayer",
        block=DECODER_LAYER,
        adapted=TorchDecoderLayer,
        sources=tuple(f"{DECODER_LAYER}.{name}" for name in ("forward", "_sa_block", "_mha_block", "_ff_block")),
        digests={"2.15.0": "f4dd66c32e4b6119"},
        features=lambda layer: layer.self_attn.embed_dim,
        norms={"attention": "norm1", "cross_attention": "norm2", "ffn": "norm3"},
        post_norm=lambda layer: not layer.norm_first,
        final_norms={f"{DECODER}.layers": ("norm",)},
    )
)
