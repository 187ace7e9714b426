"""Defines all settings that determine the training of a language model, apart from seed and text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from rskip.settings.check import check, to_plain
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count, Layers, Probability, Size

Precision = Literal["float32", "bfloat16"]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
_SQUARE = "1 to 32,768 tokens, since the time of attention grows with their square"
_Context = Annotated[int, Meta(ge=1, le=32_768, extra={"expected": _SQUARE})]
Beta = Annotated[float, Meta(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of a training. The defaults are those of nanoGPT's quick start for a cheap computer.

    Each field's description is also the help of its flag.

    :raises SettingError: a value has a wrong type or range, or two values contradict each other.
    """

    shape: Annotated[
        Literal["gpt2", "llama"],
        Meta(
            description="gpt2: GELU, learned positions; llama: SwiGLU, rotary positions, no biases; normalisations are "
            "those of the connection"
        ),
    ] = "gpt2"
    connection: Annotated[
        str,
        Meta(
            description="connection of each block, such as prenorm+ln; saved in its canonical form",
            extra={"metavar": "SPEC"},
        ),
    ] = "prenorm+ln"
    layers: Annotated[Layers, Meta(description="layers, each of which has two blocks")] = 4
    heads: Annotated[Size, Meta(description="attention heads")] = 4
    features: Annotated[Size, Meta(description="features, a multiple of the heads")] = 128
    bias: Annotated[bool, Meta(description="biases in the linear maps and the norms of the shape gpt2")] = False
    dropout: Annotated[Probability, Meta(description="dropout")] = 0.0
    context: Annotated[_Context, Meta(description="tokens that the model reads at once")] = 64
    batch_size: Annotated[Count, Meta(description="sequences per iteration, over all processes")] = 12
    iterations: Annotated[Count, Meta(description="length of the training")] = 2000
    lr: Annotated[Positive, Meta(description="highest learning rate")] = 1e-3
    final_lr: Annotated[NotNegative, Meta(description="learning rate at the end of the cosine")] = 1e-4
    warmup_iterations: Annotated[int, Meta(ge=0, description="length of the warm-up")] = 100
    beta1: Annotated[Beta, Meta(description="AdamW's first beta")] = 0.9
    beta2: Annotated[Beta, Meta(description="AdamW's second beta")] = 0.99
    weight_decay: Annotated[
        NotNegative,
        Meta(description="weight decay of matrices; vectors, scalars and what a connection excepts have none"),
    ] = 0.1
    clip_norm: Annotated[
        Positive | None, Meta(description="maximum norm of the whole gradient (no limit: --set clip_norm=null)")
    ] = 1.0
    precision: Annotated[Precision, Meta(description="bfloat16: autocast, parameters stay float32")] = "float32"
    evaluate_every: Annotated[
        Count, Meta(description="iterations between two evaluations; the last iteration is evaluated too")
    ] = 500
    save_every: Annotated[Count, Meta(description="iterations between two checkpoints")] = 500

    def __post_init__(self) -> None:
        from rskip.connections import check_connection, parse_connection  # imports PyTorch

        check(self)
        if self.features % self.heads:
            raise SettingError.of_value("features", self.features, f"a multiple of heads, {self.heads}")
        if self.bias and self.shape == "llama":
            raise SettingError.of_value("bias", self.bias, "no biases with shape llama", advice="use shape gpt2")
        if self.final_lr > self.lr:
            advice = f"give a lower one, such as {self.lr / 10:g}"
            raise SettingError.of_value("final_lr", self.final_lr, f"at most lr, {self.lr:g}", advice=advice)
        check_connection(self.connection, -1)
        refuse_profile(self.connection)
        object.__setattr__(self, "connection", str(parse_connection(self.connection)))

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values, from which `rskip.settings.check.convert` makes equal settings."""
        plain: dict[str, Any] = to_plain(self)
        return plain


def refuse_profile(connection: str) -> None:
    """Refuses a connection whose initial values come from a pass over data, which no training of language models makes.

    :raises SettingError: the connection is such a one.
    """
    from rskip.connections import find_family, parse_connection  # imports PyTorch

    if find_family(parse_connection(connection).family).needs_profile:
        expected = "one without a pass over data before training, such as wskip+ln"
        raise SettingError.of_value("connection", connection, expected)


class Cosine(Protocol):
    """Settings of a learning rate: see `TrainingSettings`."""

    @property
    def lr(self) -> float: ...
    @property
    def final_lr(self) -> float: ...
    @property
    def warmup_iterations(self) -> int: ...
    @property
    def iterations(self) -> int: ...


def learning_rate(settings: Cosine, iteration: int) -> float:
    """The learning rate of an iteration: a linear rise to lr, then a cosine, which reaches final_lr after the last one.

    :param iteration: counted from 0.
    """
    warmup = settings.warmup_iterations
    if iteration < warmup:
        return settings.lr * (iteration + 1) / (warmup + 1)
    share = min(1.0, (iteration - warmup) / max(1, settings.iterations - warmup))
    return settings.final_lr + (settings.lr - settings.final_lr) * (1 + math.cos(math.pi * share)) / 2


class LanguageModelingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a language-model run. The last iterate is evaluated.

    :param data: a text that `rskip prepare --list` shows, or a folder that `rskip prepare --text` made, relative to the
        current folder.
    :param train: settings of the training.
    """

    data: Annotated[str, msgspec.Meta(min_length=1, extra={"expected": "the name of a text, or a prepared folder"})]
    train: TrainingSettings
