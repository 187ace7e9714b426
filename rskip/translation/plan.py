"""Chooses a training's settings from the size of its corpus and from the machine.

docs/own_text.md explains the rule. The number of updates is proportional to the square root of the number of
tokens. The factor comes from the measured schedule of recipes/multi30k_en_de.yaml (29,000 pairs, size tiny). For the
4.5 million pairs of WMT'14 the rule gives 118,000 updates, near the 100,000 of Vaswani et al. (2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rskip.connections import parse_connection
from rskip.settings.check import check
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count
from rskip.tasks.fairseq.flags import Flag
from rskip.transformer.architectures import CONNECTIONS, SIZES, architecture
from rskip.translation.corpus_size import CorpusSize

CONNECTION = "2xskip+ln"
"""The default connection. It costs as much as the Transformer's own connection and folds into a vanilla model. At size
tiny no connection has reached a better final score. With 6 + 6 layers it trains where 1xskip+ln barely starts to learn
(docs/field.md)."""

SizeName = Literal["tiny", "small", "iwslt", "2layer", "base", "big"]
Precision = Literal["float32", "bfloat16", "float16"]

_UPDATES = 6944  # updates of the measured schedule
_TOKENS = 467_086  # tokens of its corpus
_SMALL, _LARGE = 60_000, 1_000_000  # numbers of pairs from which on a larger architecture is chosen
_EPOCHS, _LONG = 20, 500  # a plan of fewer epochs, each of more updates than _LONG, sets a number of updates
_FEW = 4_500  # pairs: the smallest corpus that was measured, less the sets that are split off
_MUCH_SHORTER = 4  # a training with fewer than 1 / _MUCH_SHORTER of the updates gets a warning
_CHECKPOINTS, _APART = 50, 250  # of such a plan: maximum number of checkpoints, minimum updates between them
_AVERAGED = 10
_PATIENCE = 10  # validations without a lower loss, or half of all if that is more, since BLEU rises longer


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choices for a plan; `epochs` and `updates` exclude each other. None leaves a choice to the rule."""

    connection: Annotated[
        str, Meta(description="connection of residual blocks", extra={"metavar": "SPEC"})
    ] = CONNECTION
    size: Annotated[SizeName | None, Meta(description="size of the model (default: chosen for the corpus)")] = None
    epochs: Annotated[Count | None, Meta(description="number of passes over the training set")] = None
    updates: Annotated[Count | None, Meta(description="exact number of weight updates")] = None
    precision: Annotated[
        Precision | None, Meta(description="number format for training (default: chosen for this machine)")
    ] = None

    def __post_init__(self) -> None:
        """:raises SettingError: an invalid value, or both epochs and updates."""
        check(self)
        parse_connection(self.connection)
        if self.epochs is not None and self.updates is not None:
            raise SettingError("epochs", "is given together with updates", expected="one of them")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A machine: the number of GPUs to train on (0: the CPU), and whether it has bfloat16 instructions."""

    gpus: int
    bfloat16: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of one training, and the numbers that follow from them.

    size: a key of SIZES. parameters: the model's weights, without biases and norms.
    updates: of the whole training. full: as the rule gives for the corpus. per_epoch: per pass over the corpus.
    train: flags of fairseq-train, in the form of a recipe's `train`.
    averaged: number of last checkpoints to average.
    """

    size: str
    parameters: int
    updates: int
    full: int
    per_epoch: int
    train: dict[str, Flag]
    averaged: int
    connection: str

    def settings(self) -> dict[str, Any]:
        """The sections `train`, `average` and `generate` of a recipe."""
        generate = {"beam": 4, "lenpen": 1.0, "max-tokens": 8000}
        return {"train": dict(self.train), "average": {"last": self.averaged}, "generate": generate}

    def described(self, train: Mapping[str, Flag]) -> str:
        """One line with the parts of the plan that hold for these flags.

        :param train: the recipe's flags, which may differ from the plan's.
        """
        features, inner_features, heads, layers = SIZES[self.size]
        epochs, tokens = self.updates / self.per_epoch, self.train.get("tokens-per-update", self.train["max-tokens"])
        size = (
            f"size {self.size}: {features} features, FFN dimension {inner_features}, {heads} heads, "
            f"{layers} + {layers} layers, {self.parameters / 1e6:.1f} million weights"
        )
        length = f"{self.updates:,} updates (epochs: {_passes(epochs)}) of {tokens:,} tokens"
        changed = [name for name in train.keys() | self.train.keys() if train.get(name) != self.train.get(name)]
        parts = [
            (size, ("arch", "encoder-", "decoder-", "share-")),
            (length, ("max-", "stop-", "update-freq", "batch-size", "tokens-per-update")),
            (f"dropout {self.train['dropout']:g}", ("dropout",)),
            (f"connection {self.connection}", ("arch", "encoder-connection", "decoder-connection")),
        ]
        return "; ".join(text for text, flags in parts if not any(name.startswith(flags) for name in changed))


def make_plan(corpus: CorpusSize, hardware: Hardware, choices: Choices, *, limit: int | None = None) -> Plan:
    """The plan for a corpus on a machine.

    :param limit: maximum number of updates; None: as many as chosen, or as the rule gives.
    """
    size = choices.size or _choose_size(corpus.pairs, gpus=hardware.gpus)
    parameters = SIZES[size].parameters(corpus.vocabulary)
    per_update = 2048 if size == "tiny" else 25_000 if size in ("base", "big") else 4096
    batch = min(per_update, 4096)
    per_epoch = math.ceil(corpus.batches(batch) * batch / per_update)
    rule = round(_UPDATES * math.sqrt(corpus.tokens / _TOKENS))
    by_rule = _length(rule, per_epoch)
    if choices.epochs is not None:
        wanted, chosen = choices.epochs * per_epoch, _by_epoch(choices.epochs, per_epoch)
    elif choices.updates is not None:
        wanted, chosen = choices.updates, _by_update(choices.updates, per_epoch)
    else:
        wanted, chosen = rule, by_rule
    limited = limit is not None and limit < wanted
    length, updates, averaged = _within(max(limit or 1, 1), per_epoch) if limited else chosen
    validations = updates // int(length.get("save-interval-updates") or per_epoch)
    connection = parse_connection(choices.connection)
    careful = connection.family == "sas"  # it breaks at the others' rate (docs/gradients.md)
    rate = 4e-3 if size == "tiny" else float(f"{(SIZES[size].features * 4000) ** -0.5:.2g}")
    train: dict[str, Flag] = {
        **_architecture(str(connection), size),
        **({"share-all-embeddings": True} if corpus.joined else {"share-decoder-input-output-embed": True}),
        "optimizer": "adam",
        "adam-betas": "(0.9, 0.98)",
        "clip-norm": 1.0 if careful else 0.0,
        "weight-decay": 0.0,
        "lr": rate / 2 if careful else rate,
        "lr-scheduler": "polynomial_decay",
        "total-num-update": updates,
        "warmup-updates": min(800 if size == "tiny" else 4000, updates // 8),
        "dropout": _dropout(corpus.tokens / parameters),
        "criterion": "rskip_label_smoothed_cross_entropy",
        "label-smoothing": 0.1,
        **({"tokens-per-update": per_update} if per_update > batch else {}),
        "max-tokens": batch,
        **length,
        "patience": max(_PATIENCE, math.ceil(validations / 2)),
        **_precision(choices.precision, hardware),
    }
    return Plan(
        size=size,
        parameters=parameters,
        updates=updates,
        full=by_rule[1],
        per_epoch=per_epoch,
        train=train,
        averaged=averaged,
        connection=choices.connection,
    )


def cautions(plan: Plan, pairs: int) -> list[str]:
    """Reasons why the translations of the model of so many sentence pairs will be poor, one line each."""
    few_pairs = (
        f"{pairs:,} sentence pairs are too few: expected about 5,000 or more. With 5,000 pairs of Multi30k a model "
        "scored 22.1 sacreBLEU, with 29,000 it scored 39.4 (docs/own_text.md)"
    )
    return [few_pairs] * (pairs < _FEW) + [line for line in [few_updates(plan.updates, plan)] if line]


def few_updates(updates: int, plan: Plan) -> str:
    """A line that says that `updates` are too few for the corpus of this plan; "" if they are enough."""
    if updates >= max(plan.per_epoch, plan.full / _MUCH_SHORTER):
        return ""
    passes = f"{_passes(updates / plan.per_epoch)} passes over the data"
    return f"{updates:,} updates ({passes}) are too few; the full training has {plan.full:,}: expect poor translations"


def _passes(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def _choose_size(pairs: int, *, gpus: int) -> str:
    if pairs < _SMALL:
        return "tiny"
    if gpus == 0:
        return "small"
    return "iwslt" if pairs < _LARGE else "base"


_Length = tuple[dict[str, Flag], int, int]  # flags that end a training, its updates, the checkpoints to average


def _length(updates: int, per_epoch: int) -> _Length:
    """The length of a training of about `updates` updates: whole epochs, unless they are few and long."""
    epochs = max(round(updates / per_epoch), 1)
    return _by_epoch(epochs, per_epoch) if _short(epochs, per_epoch) else _by_update(updates, per_epoch)


def _within(limit: int, per_epoch: int) -> _Length:
    """The length of a training of at most `limit` updates."""
    epochs = limit // per_epoch
    return _by_epoch(epochs, per_epoch) if epochs and _short(epochs, per_epoch) else _by_update(limit, per_epoch)


def _short(epochs: int, per_epoch: int) -> bool:
    return epochs >= _EPOCHS or per_epoch <= _LONG


def _by_epoch(epochs: int, per_epoch: int) -> _Length:
    return {"max-epoch": epochs}, epochs * per_epoch, min(_AVERAGED, math.ceil(epochs / 3))


def _by_update(updates: int, per_epoch: int) -> _Length:
    """The length of a training of exactly `updates` updates."""
    epochs, rest = divmod(updates, per_epoch)
    if epochs and not rest and _short(epochs, per_epoch):
        return _by_epoch(epochs, per_epoch)
    if epochs >= _EPOCHS:  # checkpoints of epochs, and of the end
        return {"max-update": updates}, updates, min(_AVERAGED, math.ceil(epochs / 3))
    # fairseq saves no checkpoint by updates at the end of an epoch: the first one must come before it, and later ones
    # fall on it least often if the interval and the epoch have no common factor
    longest = max(min(max(updates // _CHECKPOINTS, _APART), updates // 3, per_epoch // 2), 1)
    meets_no_end = updates < per_epoch
    interval = next(each for each in range(longest, 0, -1) if meets_no_end or math.gcd(each, per_epoch) == 1)
    averaged = min(_AVERAGED, max(updates // interval // 3, 1))
    return {"max-update": updates, "save-interval-updates": interval}, updates, averaged


def _architecture(connection: str, size: str) -> dict[str, Flag]:
    for name, spec in CONNECTIONS.items():
        if spec == connection:
            return {"arch": architecture(name, size)}
    return {"arch": architecture("skip_ln", size), "connection": connection}


def _dropout(tokens_per_weight: float) -> float:
    """The dropout probability: higher for fewer tokens per weight."""
    return 0.3 if tokens_per_weight < 0.1 else 0.2 if tokens_per_weight < 1 else 0.1


def _precision(asked: str | None, hardware: Hardware) -> dict[str, Flag]:
    if asked is None:
        asked = "bfloat16" if hardware.bfloat16 else "float16" if hardware.gpus else "float32"
    return {} if asked == "float32" else {"bf16" if asked == "bfloat16" else "fp16": True}
