"""The same tokens in an update on any number of GPUs.

fairseq-train's --max-tokens bounds one batch on one GPU: its sentences times their longest side, padding included. An
update is made of --update-freq such batches on every GPU. A recipe says how many tokens an update has
(`train.tokens-per-update`) and how many of them a GPU can take at a time (`train.max-tokens`); the rest follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rskip.settings.errors import SettingError

KEY = "tokens-per-update"

_POSITIONS = 1024  # fairseq's --max-source-positions and --max-target-positions where they are not given


@dataclass(frozen=True, kw_only=True)
class Batches:
    """What an update is made of.

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
            f"train.{KEY} is {tokens:,}: on {gpus} GPU{'s' * (gpus > 1)} that is {batches.max_tokens:,} tokens a batch "
            f"and a sentence may have {longest:,} (train.max-source-positions, train.max-target-positions): "
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
    tokens, most = train.get(KEY), train.get("max-tokens")
    if tokens is None:
        if processes == 1:
            return None
        update_freq = train.get("update-freq", 1)
        if not isinstance(most, int) or not isinstance(update_freq, int):
            raise ValueError(f"{gpus} GPUs: give train.{KEY} and train.max-tokens, so that an update stays what it is")
        tokens = most * update_freq
    assert isinstance(tokens, int) and isinstance(most, int), "check_tokens_per_update has seen to it"
    limits = (train.get(f"max-{side}-positions") for side in ("source", "target"))
    longest = max(limit if isinstance(limit, int) else _POSITIONS for limit in limits)
    return split_update(tokens, gpus=processes, most=most, longest=longest)


def check_tokens_per_update(train: Mapping[str, object]) -> None:
    """Raises ValueError where `tokens-per-update` is no number, lacks `max-tokens`, or has a flag that undoes it."""
    if train.get(KEY) is None:
        return
    for name, meaning in ((KEY, "tokens of an update"), ("max-tokens", "the most that one GPU takes at a time")):
        value = train.get(name)
        if type(value) is not int or value < 1:
            raise SettingError.of_value(f"train.{name}", value, f"a whole number, {meaning}")
    for name in ("update-freq", "batch-size"):
        if train.get(name) is not None:
            problem = f"can't be set beside train.{KEY}, which decides how an update is divided"
            raise SettingError(f"train.{name}", problem)
