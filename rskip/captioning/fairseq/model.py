"""The captioning model that fairseq trains. B images, N features per image, M captions in total, T their length."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch
from fairseq.models import FairseqEncoder, register_model
from fairseq.tasks import FairseqTask
from torch import Tensor

from rskip.captioning.config import CaptioningConfig
from rskip.captioning.model import FeatureEncoder
from rskip.captioning.model_file import OF_DATA
from rskip.fairseq_plugin.decoder import ConnectionDecoder
from rskip.fairseq_plugin.encoder import EncoderOut, encoder_out_of, memory_of
from rskip.fairseq_plugin.flags import captioning_config_from_args
from rskip.fairseq_plugin.model import ConnectionModel
from rskip.fairseq_plugin.usage_errors import usage_errors
from rskip.transformer.embedding import build_token_embedding

MODEL_NAME = "rskip_captioning_transformer"


class _EncoderInterface(FairseqEncoder):
    def __init__(self) -> None:
        super().__init__(dictionary=None)


class CaptioningEncoder(FeatureEncoder, _EncoderInterface):
    """The encoder of `rskip.captioning` with the interface that fairseq's trainer and generator expect."""

    def forward(  # type: ignore[override]
        self, features: Tensor, padding_mask: Tensor | None = None, grids: Tensor | None = None
    ) -> EncoderOut:
        """Encodes features (B, N, C) to fairseq's dictionary of lists, with states as (N, B, C)."""
        return encoder_out_of(self.encode(features, padding_mask, grids))

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """Selects the rows of the batch in `new_order`, in this order."""
        return encoder_out_of(memory_of(encoder_out).reorder(new_order))

    def max_positions(self) -> None:
        """The number of features, which has no limit."""
        return None


@register_model(MODEL_NAME)
class CaptioningModel(ConnectionModel):
    """`rskip.captioning.model.CaptioningTransformer` as a model of fairseq."""

    config: CaptioningConfig

    @classmethod
    def build_model(cls, args: Namespace, task: FairseqTask) -> CaptioningModel:
        """Builds the model that `args` describe, with the dictionary and features of the task.

        :raises UsageError: `args` are from a checkpoint that was trained on other features.
        """
        of_data = {**task.features_of_model(), "vocabulary": len(task.target_dictionary)}
        of_data["padding_index"] = task.target_dictionary.pad()
        if (before := getattr(args, OF_DATA, None)) is not None:
            with usage_errors():
                captioning_config_from_args(args, before).check_features(of_data["features"])
        setattr(args, OF_DATA, of_data)
        config = captioning_config_from_args(args, of_data)
        words = build_token_embedding(config.vocabulary, config.decoder_embed_dim, config.padding_index)
        model = cls(config, CaptioningEncoder(config), ConnectionDecoder(config, task.target_dictionary, words))
        model.decoder.left_padded = False
        model.prepare_training(args)
        return model

    def forward(
        self,
        features: Tensor,
        padding_mask: Tensor | None,
        grids: Tensor | None,
        prev_output_tokens: Tensor,
        counts: Tensor | None = None,
        **decoder_options: Any,
    ) -> Any:
        """Logits (M, T, V) for features (B, N, C) and prefixes (M, T), with the captions of an image in sequence.

        :param counts: (B,) number of captions per image; None: the same for all.
        """
        if (probe := self.active_probe) is not None:
            real = features.new_ones(features.shape[:2], dtype=torch.bool) if padding_mask is None else ~padding_mask
            probe.begin_batch({"encoder": real, "decoder": prev_output_tokens.ne(self.config.padding_index)})
        encoder_out = self.encoder(features, padding_mask, grids)
        images, captions = len(features), len(prev_output_tokens)
        if captions != images:
            repeats = captions // images if counts is None else counts
            rows = torch.arange(images, device=features.device).repeat_interleave(repeats, output_size=captions)
            encoder_out = self.encoder.reorder_encoder_out(encoder_out, rows)
        return self.decoder(prev_output_tokens, encoder_out=encoder_out, **decoder_options)

    def max_positions(self) -> int:
        """The maximum length of a caption, in tokens."""
        return self.decoder.max_positions()
