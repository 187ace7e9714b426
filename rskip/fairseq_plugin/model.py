"""The model that fairseq trains."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from fairseq.models import BaseFairseqModel, FairseqEncoder, FairseqEncoderDecoderModel, register_model
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_compat.one_line_errors import UsageError
from rskip.checkpoint.stock_names import from_stock
from rskip.cpu.loss import log_softmax
from rskip.fairseq_plugin.decoder import ConnectionDecoder
from rskip.fairseq_plugin.encoder import ConnectionEncoder
from rskip.fairseq_plugin.flags import (
    add_flags,
    add_translation_flags,
    config_from_args,
    take_compile_layers,
    take_probe,
)
from rskip.fairseq_plugin.probe import Probe, TrainingProbe
from rskip.fairseq_plugin.usage_errors import usage_errors
from rskip.machine.device import set_gpu_arithmetic
from rskip.machine.memory import keep_freed_memory
from rskip.transformer import TransformerConfig
from rskip.transformer.config import DecoderConfig, StackConfig
from rskip.transformer.embedding import build_token_embedding
from rskip.transformer.stack import compile_layers

_Model = TypeVar("_Model", bound="TrainedByFairseq")

MODEL_NAME = "rskip_transformer"


class OtherArchitectureError(UsageError):
    """Raised if a checkpoint's parameters don't fit the model.

    difference: the first parameter that doesn't fit, without advice, which depends on the program.
    """

    def __init__(self, difference: str) -> None:
        super().__init__(f"{difference}: use the data folder of its training run, without --model-overrides")
        self.difference = difference


class TrainedByFairseq(BaseFairseqModel):
    """What all our models add to fairseq's: the probe, compiled layers, their loss, and errors of one line.

    stacks: the members that are stacks of layers.
    computes_loss: `forward` accepts `loss`, a function of the features and the output weight.
    """

    computes_loss = True
    stacks: tuple[str, ...]
    config: DecoderConfig
    probe: Probe | None = None

    def prepare_training(self, args: Namespace) -> None:
        """Removes the flags for probe and compiling from `args`, because checkpoints store those, and applies them."""
        if take_compile_layers(args):
            compile_layers(*(getattr(self, stack).layers for stack in self.stacks))
        file, every = take_probe(args)
        if file is not None:
            self.probe = TrainingProbe(self, Path(file), every)

    def set_num_updates(self, num_updates: int) -> None:
        """Sets the number of finished updates. fairseq calls it before each batch."""
        super().set_num_updates(num_updates)
        if self.probe is not None:
            self.probe.updates = num_updates

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """Like fairseq's, in float32. Logarithms are computed without a float32 copy of the logits."""
        if log_probs:
            return log_softmax(net_output[0])
        return super().get_normalized_probs(net_output, log_probs, sample)

    @property
    def connections(self) -> dict[str, str]:
        """The connection of each stack."""
        return {stack: getattr(self.config, f"{stack}_connection") for stack in self.stacks}

    def train(self: _Model, mode: bool = True) -> _Model:
        """Sets the mode. Training on a CPU then keeps freed memory.

        On a GPU it sets the precision of matrix products, and raises `UsageError` if it lacks bfloat16.
        """
        weight = self.decoder.output_projection.weight
        if mode and weight.is_cpu:
            keep_freed_memory()
        if weight.is_cuda:
            set_gpu_arithmetic(weight.device, training=mode)
            if mode and weight.dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported(including_emulation=False):
                name = torch.cuda.get_device_name(weight.device)
                raise UsageError(f"--bf16: the GPU {name} doesn't support bfloat16: use --fp16, or leave it out")
        super().train(mode)
        return self

    @property
    def active_probe(self) -> Probe | None:
        """The probe during a forward pass of training."""
        return self.probe if self.training and torch.is_grad_enabled() else None

    def all_reduce_grads(self) -> None:
        """Called by fairseq after an update's backward passes, for models that reduce gradients themselves."""
        if self.probe is not None:
            self.probe.end_backward()

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Refuses flags of fairseq-generate that the model does not support."""
        if getattr(getattr(cfg, "generation", cfg), "retain_dropout", False):
            raise UsageError("--retain-dropout is not supported by rskip's models: leave it out")
        super().prepare_for_inference_(cfg)

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True, *args: Any, **kwargs: Any) -> Any:
        """Loads parameters, also of fairseq's own Transformer, whose names differ.

        :raises OtherArchitectureError: a parameter doesn't fit. The error names the first one.
        """
        if strict:
            own = self.state_dict(keep_vars=True)
            if own.keys() != state_dict.keys():
                state_dict = from_stock(state_dict)
            if difference := next(self._differences(own, state_dict), None):
                raise OtherArchitectureError(f"the checkpoint has another architecture: {difference}")
        return super().load_state_dict(state_dict, strict, *args, **kwargs)

    def _differences(self, own: dict[str, Tensor], there: dict[str, Tensor]) -> Iterator[str]:
        """How the parameters of a checkpoint differ from the model's: in names, in shapes, in what is shared."""
        for name in sorted(own.keys() ^ there.keys()):
            specs = ", ".join(dict.fromkeys(self.connections.values()))
            where = "checkpoint" if name in own else "model"
            yield f"parameter {name} is not in the {where} (the model's connections: {specs})"
        for name, tensor in own.items():
            if tensor.shape != there[name].shape:
                shapes = f"{tuple(there[name].shape)} in the checkpoint and {tuple(tensor.shape)} in the model"
                yield f"parameter {name} has shape {shapes}"
        first: dict[int, str] = {}  # name by parameter
        for name, tensor in own.items():
            shared = first.setdefault(id(tensor), name)
            if not torch.equal(there[name], there[shared]):
                yield f"{shared} and {name} differ in the checkpoint, but the model shares them"


class ConnectionModel(TrainedByFairseq, FairseqEncoderDecoderModel):
    """Base of our encoder-decoders for fairseq's trainer, generator, validator and hub interface."""

    stacks = ("encoder", "decoder")
    config: StackConfig

    def __init__(self, config: StackConfig, encoder: FairseqEncoder, decoder: ConnectionDecoder) -> None:
        super().__init__(encoder, decoder)
        self.config = config

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Adds the model's flags to fairseq's parser."""
        add_flags(parser)


@register_model(MODEL_NAME)
class ConnectionTransformer(ConnectionModel):
    """`rskip.transformer.Transformer` as a fairseq model."""

    config: TransformerConfig

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Adds the model's flags to fairseq's parser."""
        add_flags(parser)
        add_translation_flags(parser)

    @classmethod
    def build_model(cls, args: Namespace, task: FairseqTask) -> ConnectionTransformer:
        """Builds the model from `args` and the task's dictionaries."""
        if hasattr(task, "targets"):  # as fairseq's tasks of language models have
            raise UsageError("this --arch translates: for a language model use one such as transformer_lm_rskip_ln")
        source, target = task.source_dictionary, task.target_dictionary
        config = config_from_args(args, source, target)
        embed_source = build_token_embedding(len(source), config.encoder_embed_dim, source.pad())
        embed_target = (
            embed_source
            if config.share_all_embeddings
            else build_token_embedding(len(target), config.decoder_embed_dim, target.pad())
        )
        with usage_errors():
            encoder = ConnectionEncoder(config, source, embed_source)
            decoder = ConnectionDecoder(config, target, embed_target)
        decoder.starts_with = config.start
        # padding in the batch; without this the model would have to wait for its device
        decoder.left_padded = getattr(getattr(task, "cfg", None), "left_pad_target", None)
        model = cls(config, encoder, decoder)
        model.prepare_training(args)
        return model

    def forward(
        self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor, **decoder_options: Any
    ) -> Any:
        """Logits (B, T, V) for source (B, S) and target prefix (B, T), and the decoder's extras."""
        if (probe := self.active_probe) is not None:
            padding = self.config.padding_index
            probe.begin_batch({"encoder": src_tokens.ne(padding), "decoder": prev_output_tokens.ne(padding)})
        encoder_out = self.encoder(src_tokens, src_lengths)
        return self.decoder(prev_output_tokens, encoder_out=encoder_out, **decoder_options)
