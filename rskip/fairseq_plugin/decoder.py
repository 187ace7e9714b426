"""Our decoder with fairseq's interface. B batch, T target length, C features, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from rskip.fairseq_plugin.encoder import EncoderOut, memory_of
from rskip.transformer.attention import record_weights
from rskip.transformer.config import StackConfig
from rskip.transformer.decoder import Decoder

_CACHE = "rskip_cache"


class _DecoderInterface(FairseqIncrementalDecoder):
    def __init__(self) -> None:
        super().__init__(dictionary=None)


class ConnectionDecoder(Decoder, _DecoderInterface):
    """`rskip.transformer`'s decoder with the arguments and results that fairseq's trainer and generator expect.

    starts_with: the token that targets start with. fairseq's own start with the end symbol, which is replaced.
    """

    starts_with: Literal["end", "begin"] = "end"

    def __init__(self, config: StackConfig, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(config, embed_tokens)
        self.dictionary = dictionary
        self.adaptive_softmax = None

    def forward(  # type: ignore[override]
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        loss: Callable[[Tensor, Tensor], Any] | None = None,
    ) -> Any:
        """Logits (B, T, V), or features (B, T, C), and fairseq's extras.

        Outside training, the extra `attn` has the last layer's weights over the source (B, T, S), and with
        `incremental_state` only the last token is read. With `loss`, returns that function's result for the features
        and the output weight (V, C). DistributedDataParallel needs parameters to be used within the model's forward.
        """
        memory = memory_of(encoder_out)
        if self.starts_with == "begin":
            start = prev_output_tokens == self.dictionary.eos()
            prev_output_tokens = prev_output_tokens.masked_fill(start, self.dictionary.bos())
        if loss is not None:
            features, weight = self.features(prev_output_tokens, memory), self.output_projection.weight
            if (bias := self.output_projection.bias) is not None:  # the weight of a further feature, which is 1
                features = torch.cat([features, torch.ones_like(features[..., :1])], dim=-1)
                weight = torch.cat([weight, bias[:, None]], dim=1)
            return loss(features, weight)
        if self.training:
            features = self.features(prev_output_tokens, memory)
            return (features if features_only else self.output_projection(features)), {"attn": [None]}
        with record_weights(self.decoder_layers()[-1].encoder_attn) as weights:
            if incremental_state is None:
                features = self.features(prev_output_tokens, memory)
                output = features if features_only else self.output_projection(features)
            else:
                cache = incremental_state.get(_CACHE)
                if cache is None:
                    cache = incremental_state[_CACHE] = self.start(memory)
                output = self.step(prev_output_tokens[:, -1:], cache)
        return output, {"attn": weights, "inner_states": []}

    def extract_features(self, prev_output_tokens: Tensor, encoder_out: EncoderOut, **options: Any) -> Any:
        """Features (B, T, C) of whole targets, and fairseq's extras. Options are those of `forward`."""
        assert options.get("incremental_state") is None, "features are of whole targets"
        return self(prev_output_tokens, encoder_out, **{**options, "features_only": True})

    def output_layer(self, features: Tensor) -> Tensor:
        """Projects features (B, T, C) to logits (B, T, V)."""
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Selects the rows `new_order` of the cache, in that order."""
        if _CACHE in incremental_state:
            incremental_state[_CACHE].reorder(torch.zeros_like(new_order)[:, None], new_order)

    def max_positions(self) -> int:
        """The maximum target length in tokens."""
        return self.config.max_target_positions
