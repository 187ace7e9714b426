"""The hyperparameters of Transformers. Importing this module does not import torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from rskip.formulas import check_connection, find_family, parse_connection
from rskip.settings.check import Checked, convert
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Index, Layers, Positions, Positive, Probability, Size

if TYPE_CHECKING:
    from torch import Tensor

Config = TypeVar("Config", bound="DecoderConfig")
ACTIVATIONS = ("relu", "gelu", "gelu_accurate", "gelu_fast", "tanh", "linear", "swish")


@dataclass(frozen=True, kw_only=True)
class RotaryScaling(Checked):
    """Lower frequencies for contexts that are longer than those of the first training.

    :param kind: "linear" divides all frequencies by `factor`. "llama3" divides those whose wavelength exceeds
        `original_positions` / `low_freq_factor`, leaves those below `original_positions` / `high_freq_factor`, and
        interpolates between them, as Llama 3.1 does.
    """

    kind: Literal["linear", "llama3"]
    factor: Positive
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    original_positions: Positions = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high_freq_factor <= self.low_freq_factor:
            expected = f"more than low_freq_factor, {self.low_freq_factor:g}"
            raise SettingError.of_value("high_freq_factor", self.high_freq_factor, expected)

    def scaled(self, frequencies: Tensor) -> Tensor:
        """The frequencies (D/2) after scaling."""
        if self.kind == "linear":
            return frequencies / self.factor
        low, high = self.low_freq_factor, self.high_freq_factor
        turns = self.original_positions / (2 * math.pi / frequencies)  # in the original context
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(Checked):
    """The hyperparameters of a decoder, with or without an encoder. The fields have the names of fairseq's flags.

    :param decoder_connection: connection string, such as "2rskip+ln".
    :param value_residual: each later self-attention of a stack mixes the first one's values into its own: half of both
        ("fixed") or with learned factors ("learned"). See `rskip.transformer.value_residual`.
    :raises SettingError: a field has the wrong type or range, or fields contradict each other.
    """

    decoder_embed_dim: Size = 512
    decoder_ffn_embed_dim: Size = 2048
    decoder_attention_heads: Size = 8
    decoder_layers: Layers = 6
    decoder_learned_pos: bool = False
    decoder_connection: str = "1xskip+ln"
    activation_fn: str = "relu"
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    decoder_layerdrop: Probability = 0.0
    share_decoder_input_output_embed: bool = False
    no_scale_embedding: bool = False
    no_token_positional_embeddings: bool = False
    layernorm_embedding: bool = False
    max_target_positions: Positions = 1024
    checkpoint_activations: bool = False
    value_residual: Literal["none", "fixed", "learned"] = "none"
    stacks: ClassVar[tuple[str, ...]] = ("decoder",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for side in self.stacks:
            self._check_stack(side)
        self._check_sinusoidal("decoder_embed_dim", learned=self.decoder_learned_pos)
        if self.activation_fn not in ACTIVATIONS:
            raise self._wrong("activation_fn", f"one of {', '.join(ACTIVATIONS)}")

    @property
    def embeds_positions(self) -> bool:
        """Whether embeddings of positions are added to those of tokens."""
        return not self.no_token_positional_embeddings

    @property
    def output_is_embedding(self) -> bool:
        """Whether the output projection shares the matrix of the decoder's embeddings."""
        return self.share_decoder_input_output_embed

    @property
    def output_has_bias(self) -> bool:
        """Whether the output projection has a bias."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[Config], values: Mapping[str, Any]) -> Config:
        """The configuration from a result of `to_dict`.

        :raises SettingError: a value has the wrong type, or a key is unknown; the nearest known key is suggested.
        """
        return convert(values, cls)

    def _check_stack(self, side: str) -> None:
        """Checks the sizes and the connection of the stack `side`."""
        heads = getattr(self, f"{side}_attention_heads")
        if getattr(self, f"{side}_embed_dim") % heads:
            raise self._wrong(f"{side}_embed_dim", f"a multiple of the number of the {side}'s heads, {heads}")
        try:
            spec = parse_connection(getattr(self, f"{side}_connection"))
            check_connection(spec, -1)
        except SettingError as error:
            raise error.named(f"{side}_connection") from None
        if find_family(spec.family).passes == "history" and getattr(self, f"{side}_layerdrop"):
            expected = f"0 with {spec}, whose connections read the outputs of all earlier layers"
            raise self._wrong(f"{side}_layerdrop", expected)
        if self.value_residual != "none" and getattr(self, f"{side}_layerdrop"):
            expected = f"0 with value_residual {self.value_residual}, which reads the first layer's values"
            raise self._wrong(f"{side}_layerdrop", expected)

    def _check_sinusoidal(self, name: str, *, learned: bool) -> None:
        if getattr(self, name) % 2 and self.embeds_positions and not learned:
            raise self._wrong(name, "an even number, for sinusoidal positions")

    def _wrong(self, name: str, expected: str) -> SettingError:
        return SettingError.of_value(name, getattr(self, name), expected)


@dataclass(frozen=True, kw_only=True)
class StackConfig(DecoderConfig):
    """The hyperparameters of an encoder and a decoder, for any kind of input.

    :param encoder_connection: connection string of the encoder, as `decoder_connection`.
    """

    padding_index: Index = 1
    encoder_embed_dim: Size = 512
    encoder_ffn_embed_dim: Size = 2048
    encoder_attention_heads: Size = 8
    encoder_layers: Layers = 6
    encoder_connection: str = "1xskip+ln"
    encoder_layerdrop: Probability = 0.0
    stacks = ("encoder", "decoder")


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(DecoderConfig):
    """The hyperparameters of a decoder-only language model. The fields below have no flag in fairseq.

    The defaults are those of fairseq's `transformer_lm`; `LANGUAGE_MODELS` in `rskip.transformer.architectures` has
    further shapes.

    :param decoder_key_value_heads: heads of keys and values, each of which serves several heads of queries (Ainslie et
        al. 2023); None: as many as `decoder_attention_heads`.
    :param gated_ffn: the feed-forward hidden features are multiplied by a third linear map of x: SwiGLU if
        `activation_fn` is "swish" (Shazeer 2020).
    :param biases: whether linear maps and layer normalisations have biases. Gates of connections always have theirs.
    :param rotary_theta: base of rotary positions (Su et al. 2021), which replace embedded positions; None: no rotation.
    :param rotary_scaling: change of the rotary frequencies for a longer context; None: none.
    :param norm_eps: value that every normalisation adds to the variance or mean square.
    :param initial_std: standard deviation of all initial weights, as in GPT-2; None: fairseq's initial values.
    """

    decoder_connection: str = "prenorm+ln"
    decoder_key_value_heads: Size | None = None
    gated_ffn: bool = False
    biases: bool = True
    rotary_theta: Positive | None = None
    rotary_scaling: RotaryScaling | None = None
    norm_eps: Positive = 1e-5
    initial_std: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        heads = self.decoder_attention_heads
        if heads % self.key_value_heads:
            raise self._wrong("decoder_key_value_heads", f"a divisor of decoder_attention_heads, {heads}")
        if self.rotary_theta is None:
            if self.rotary_scaling is not None:
                raise SettingError("rotary_scaling", "needs rotary positions", advice="set rotary_theta")
            return
        if self.decoder_learned_pos:
            raise self._wrong("decoder_learned_pos", "false with rotary_theta, since rotary positions replace it")
        if self.decoder_embed_dim // heads % 2:
            raise self._wrong("decoder_embed_dim", "an even number of features per head, for rotary positions")

    @property
    def embeds_positions(self) -> bool:
        return self.rotary_theta is None and super().embeds_positions

    @property
    def key_value_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.decoder_key_value_heads or self.decoder_attention_heads


@dataclass(frozen=True)
class TransformerConfig(StackConfig):
    """All hyperparameters of a Transformer over tokens: `StackConfig`, and the vocabularies and positions.

    Vocabulary sizes count every symbol of the dictionary, including special symbols. `output_bias` and `start` have no
    flag in fairseq. With `output_bias` the output projection adds one learned value per token to its logit. Targets
    start with the dictionary's end symbol (`</s>`), as in fairseq, or with its beginning symbol (`<s>`).
    """

    source_vocabulary: Size
    target_vocabulary: Size
    encoder_learned_pos: bool = False
    share_all_embeddings: bool = False
    max_source_positions: Positions = 1024
    output_bias: bool = False
    start: Literal["end", "begin"] = "end"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("source_vocabulary", "target_vocabulary"):
            if getattr(self, name) <= self.padding_index:
                raise self._wrong(name, f"more than padding_index, {self.padding_index}")
        self._check_sinusoidal("encoder_embed_dim", learned=self.encoder_learned_pos)
        for needed, source, target, of in (
            ("one joint dictionary", self.source_vocabulary, self.target_vocabulary, "symbols"),
            ("equal embedding sizes", self.encoder_embed_dim, self.decoder_embed_dim, "features"),
        ):
            if self.share_all_embeddings and source != target:
                problem = f"needs {needed}, but source and target have {source} and {target} {of}"
                raise SettingError("share_all_embeddings", problem)

    @property
    def output_is_embedding(self) -> bool:
        return self.share_decoder_input_output_embed or self.share_all_embeddings

    @property
    def output_has_bias(self) -> bool:
        return self.output_bias


class TransformerProperties:
    """The properties of a translation model that follow from its configuration."""

    config: TransformerConfig

    @property
    def max_source_positions(self) -> int | None:
        """The maximum source length in tokens, including the end symbol; None without a limit."""
        return self.config.max_source_positions if self.config.encoder_learned_pos else None

    @property
    def target_start(self) -> Literal["end", "begin"]:
        """The token of the dictionary that targets start with."""
        return self.config.start

    @property
    def connection(self) -> str:
        """The spec of its connections; if they differ, "encoder's / decoder's"."""
        return " / ".join(dict.fromkeys((self.config.encoder_connection, self.config.decoder_connection)))

    @property
    def trained_source_positions(self) -> int:
        """The longest source that fairseq would have trained on."""
        return self.config.max_source_positions
