"""The batches of a translation training: an update has the same tokens on any number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rskip.translation.recipe import TOKENS_PER_UPDATE, TranslationSettings

_POSITIONS = 1024  # fairseq's --max-source-positions and --max-target-positions where they are not given


def check(settings: TranslationSettings, *, gpus: int) -> None:
    """See `Task.check`."""
    plan_batches(settings.train, gpus=gpus)


@dataclass(frozen=True, kw_only=True)
class Batches:
    """What an update is made of: the same tokens on any number of GPUs.

    fairseq-train's --max-tokens bounds one batch on one GPU: its sentences times their longest side, padding included.
    An update is made of --update-freq such batches on every GPU. A recipe says how many tokens an update has
    (`train.tokens-per-update`) and how many of them a GPU can take at a time (`train.max-tokens`); the rest follows.

    :param gpus: how many take part; a CPU counts as one.
    :param update_freq: batches that each takes before the update.
    :param max_tokens: most tokens of one batch.
    """

    gpus: int
    update_freq: int
    max_tokens: int

    @property
    def tokens(self) -> int:
        """Most tokens of an update."""
        return self.gpus * self.update_freq * self.max_tokens

    def __str__(self) -> str:
        batches, gpus = self.gpus * self.update_freq, f" on {self.gpus} GPUs" if self.gpus > 1 else ""
        made_of = f"{batches} batches of {self.max_tokens:,}{gpus}" if batches > 1 else "one batch"
        return f"{self.tokens:,} tokens an update: {made_of}"


def split_update(tokens: int, *, gpus: int, most: int, longest: int) -> Batches:
    """Batches of equal size, as few as there can be, that make up an update.

    What doesn't divide is left out: fewer tokens than the update has batches.

    :param tokens: of an update.
    :param most: tokens that one GPU can take at a time.
    :param longest: tokens that a sentence can have: a batch must hold it.
    :raises ValueError: a batch would be shorter than `longest`.
    """
    update_freq = -(-tokens // (gpus * most))
    batches = Batches(gpus=gpus, update_freq=update_freq, max_tokens=tokens // (gpus * update_freq))
    if batches.max_tokens < longest:
        raise ValueError(
            f"train.{TOKENS_PER_UPDATE} is {tokens:,}: on {gpus} GPU{'s' * (gpus > 1)} that is {batches.max_tokens:,} "
            f"tokens a batch and a sentence may have {longest:,} "
            "(train.max-source-positions, train.max-target-positions): "
            + ("use fewer GPUs or lower these" if gpus > 1 else "give a greater train.max-tokens or lower these")
        )
    return batches


def plan_batches(train: Mapping[str, object], *, gpus: int) -> Batches | None:
    """The batches of an update under a recipe's flags of fairseq-train; None: as the flags say.

    Without `tokens-per-update` an update has the tokens that the flags give it on one GPU.

    :param gpus: how many are used, 0 for the CPU.
    :raises ValueError: as `split_update`; or several GPUs, and the flags don't say what one takes.
    """
    processes = max(gpus, 1)
    tokens, most = train.get(TOKENS_PER_UPDATE), train.get("max-tokens")
    if tokens is None:
        if processes == 1:
            return None
        update_freq = train.get("update-freq", 1)
        if not isinstance(most, int) or not isinstance(update_freq, int):
            names = f"train.{TOKENS_PER_UPDATE} and train.max-tokens"
            raise ValueError(f"{gpus} GPUs: give {names}, so that an update stays what it is")
        tokens = most * update_freq
    assert isinstance(tokens, int) and isinstance(most, int), "TranslationSettings has seen to it"
    limits = (train.get(f"max-{side}-positions") for side in ("source", "target"))
    longest = max(limit if isinstance(limit, int) else _POSITIONS for limit in limits)
    return split_update(tokens, gpus=processes, most=most, longest=longest)
