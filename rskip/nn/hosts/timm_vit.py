"""timm's ViTs: pre-norm blocks of attention and a feed-forward branch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rskip.connections import State
from rskip.nn.hosts.host import AdaptedBlock, Host, register_host
from rskip.nn.hosts.timm_intermediates import leave_intermediates

BLOCK = "timm.models.vision_transformer.Block"


class TimmViTBlock(AdaptedBlock):
    """The forward of timm's `Block`; layer scale and stochastic depth stay part of the branches."""

    def forward(self, x: State, attn_mask: Tensor | None = None, is_causal: bool = False) -> State:
        block: Any = self
        state = self.residuals.attention(self.enter(x), self._attention, attn_mask=attn_mask, is_causal=is_causal)
        return self.leave(self.residuals.ffn(state, lambda given: block.drop_path2(block.ls2(block.mlp(given)))))

    def _attention(self, x: Tensor, **settings: Any) -> Tensor:
        block: Any = self
        attended: Tensor = block.drop_path1(block.ls1(block.attn(x, **settings)))
        return attended


register_host(
    Host(
        name="timm ViT",
        block=BLOCK,
        adapted=TimmViTBlock,
        sources=(f"{BLOCK}.forward",),
        digests={"1.0.31": "b0251e6642e6e0a6"},
        norms={"attention": "norm1", "ffn": "norm2"},
        features=lambda block: block.norm1.normalized_shape[0],
        final_norms={
            "timm.models.vision_transformer.VisionTransformer.blocks": ("norm", "fc_norm"),  # fc_norm: after the mean
            "timm.models.naflexvit.NaFlexVit.blocks": ("norm", "fc_norm"),
            "timm.models.mobilevit.MobileVitBlock.transformer": ("norm",),
        },
        finish=leave_intermediates,
    )
)
