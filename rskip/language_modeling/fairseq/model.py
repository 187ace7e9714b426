"""The language model that fairseq trains, and its architectures. B batch, T length, C features, V vocabulary."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqDecoder, FairseqLanguageModel, register_model, register_model_architecture
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_compat.one_line_errors import UsageError
from rskip.fairseq_plugin.flags import add_training_flags, check_probe
from rskip.fairseq_plugin.model import TrainedByFairseq
from rskip.fairseq_plugin.usage_errors import flag_of, usage_errors
from rskip.language_modeling.settings import refuse_profile
from rskip.transformer import LanguageModelConfig
from rskip.transformer.architectures import CONNECTIONS, LANGUAGE_MODELS, architecture
from rskip.transformer.embedding import build_token_embedding
from rskip.transformer.language_model import LanguageDecoder

MODEL_NAME = "rskip_language_model"
_LENGTH = "max_target_positions"  # a flag of the task
# Fields without a flag of their own, because add_training_flags, the task or Python sets them.
_NO_FLAGS = ("decoder_connection", "value_residual", "rotary_scaling", _LENGTH)


class _DecoderInterface(FairseqDecoder):
    def __init__(self) -> None:
        super().__init__(dictionary=None)


class FairseqLanguageDecoder(LanguageDecoder, _DecoderInterface):
    """`rskip.transformer`'s decoder with the arguments and results that fairseq's trainer and scorer expect."""

    def __init__(self, config: LanguageModelConfig, dictionary: Dictionary) -> None:
        super().__init__(config, build_token_embedding(len(dictionary), config.decoder_embed_dim, dictionary.pad()))
        self.dictionary = dictionary
        self.adaptive_softmax = None
        self.left_padded = False

    def forward(
        self,
        tokens: Tensor,
        encoder_out: None = None,
        src_lengths: Tensor | None = None,
        features_only: bool = False,
        loss: Callable[[Tensor, Tensor], Any] | None = None,
    ) -> Any:
        """Logits (B, T, V), or features (B, T, C), and fairseq's extras, which hold no attention.

        With `loss`, returns that function's result for the features and the output weight (V, C).
        """
        features = self.features(tokens)
        if loss is not None:
            return loss(features, self.output_projection.weight)
        return (features if features_only else self.output_projection(features)), {"attn": None}

    def extract_features(self, tokens: Tensor, **options: Any) -> Any:
        """Features (B, T, C) and fairseq's extras."""
        return self(tokens, features_only=True, **options)

    def output_layer(self, features: Tensor) -> Tensor:
        """Projects features (B, T, C) to logits (B, T, V)."""
        return self.output_projection(features)

    def max_positions(self) -> int:
        """The maximum length in tokens."""
        return self.config.max_target_positions


@register_model(MODEL_NAME)
class FairseqConnectionLanguageModel(TrainedByFairseq, FairseqLanguageModel):
    """`rskip.transformer.LanguageModel` as a fairseq model."""

    stacks = ("decoder",)
    config: LanguageModelConfig

    def __init__(self, config: LanguageModelConfig, decoder: FairseqLanguageDecoder) -> None:
        super().__init__(decoder)
        self.config = config

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Adds the model's flags to fairseq's parser: one per field of `LanguageModelConfig`."""
        parser.add_argument(
            "--connection", metavar="SPEC", help="residual connection, such as 2rskip+ln (default: the architecture's)"
        )
        add_training_flags(parser)
        for field in fields(LanguageModelConfig):
            name, default = field.name, field.default
            if name in _NO_FLAGS:
                continue
            about = f"{name} of LanguageModelConfig"
            if isinstance(default, bool):
                action: Any = "store_true" if name.startswith("no_") else BooleanOptionalAction
                parser.add_argument(flag_of(name), action=action, default=None, help=about)
            else:
                kind: Any = {"decoder_key_value_heads": int}.get(name, float if default is None else type(default))
                parser.add_argument(flag_of(name), type=kind, metavar="X", help=about)

    @classmethod
    def build_model(cls, args: Namespace, task: FairseqTask) -> FairseqConnectionLanguageModel:
        """Builds the model from `args` and the task's dictionary."""
        if not hasattr(task, "targets"):
            raise UsageError("this --arch is a language model: give --task language_modeling, or an --arch without lm")
        if len(task.source_dictionary) != len(task.target_dictionary):
            raise UsageError("--output-dictionary-size is not supported by rskip's architectures: leave it out")
        config = config_from_args(args)
        _check_length(task.args, config.max_target_positions)
        model = cls(config, FairseqLanguageDecoder(config, task.source_dictionary))
        model.prepare_training(args)
        return model

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None, **decoder_options: Any) -> Any:
        """Logits (B, T, V) of the token after each of `src_tokens` (B, T), and fairseq's extras."""
        if (probe := self.active_probe) is not None:
            probe.begin_batch({"decoder": src_tokens.ne(self.decoder.dictionary.pad())})
        return self.decoder(src_tokens, **decoder_options)


def config_from_args(args: Namespace) -> LanguageModelConfig:
    """The configuration of a model from flags. Raises `UsageError` if they contradict each other."""
    names = [field.name for field in fields(LanguageModelConfig) if getattr(args, field.name, None) is not None]
    values = {name: getattr(args, name) for name in names} | {"decoder_connection": args.connection}
    with usage_errors(named={"decoder_connection": "connection"}):
        config = LanguageModelConfig(**values)
        refuse_profile(config.decoder_connection)
    check_probe(args, config.decoder_connection)
    return config


def _check_length(task: Namespace, longest: int) -> None:
    """Refuses samples that the model has no positions for, which fairseq would leave out with a mere warning.

    With the other break modes a sample is as long as its text.
    """
    length = task.tokens_per_sample
    if length > longest and task.sample_break_mode in (None, "none"):
        raise UsageError(f"--tokens-per-sample is {length}: expected at most {longest}, the model's positions")


def _architecture(connection: str, size: Mapping[str, Any]) -> Callable[[Namespace], None]:
    def fill_in(args: Namespace) -> None:
        """Sets defaults for unset flags. It is idempotent: fairseq calls it again when it loads a checkpoint."""
        length = getattr(args, _LENGTH, None) or getattr(args, "tokens_per_sample", None)
        defaults = {field.name: field.default for field in fields(LanguageModelConfig)}
        for name, value in {**defaults, **size, "connection": connection, _LENGTH: length}.items():
            if name != "decoder_connection" and getattr(args, name, None) is None and value is not None:
                setattr(args, name, value)
        config_from_args(args)

    return fill_in


for _name, _spec in CONNECTIONS.items():
    for _size, _values in LANGUAGE_MODELS.items():
        _named = architecture(_name, _size, model="transformer_lm")
        register_model_architecture(MODEL_NAME, _named)(_architecture(_spec, _values))
