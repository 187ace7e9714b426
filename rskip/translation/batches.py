"""Plans the batches of a translation training, so that an update has the same tokens on any number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rskip.translation.recipe import TOKENS_PER_UPDATE

_POSITIONS = 1024  # fairseq's default of --max-source-positions and --max-target-positions


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches of an update: `update_freq` on each GPU (a CPU counts as one), of `max_tokens` tokens each.

    fairseq-train's --max-tokens limits the number of sentences of a batch times their longest side, including padding.
    A recipe gives the tokens per update (`train.tokens-per-update`) and the maximum of a GPU (`train.max-tokens`).
    """

    gpus: int
    update_freq: int
    max_tokens: int

    @property
    def tokens(self) -> int:
        """The maximum number of tokens in an update."""
        return self.gpus * self.update_freq * self.max_tokens

    def __str__(self) -> str:
        batches, gpus = self.gpus * self.update_freq, f" on {self.gpus} GPUs" if self.gpus > 1 else ""
        made_of = f"{batches} batches of {self.max_tokens:,}{gpus}" if batches > 1 else "one batch"
        return f"{self.tokens:,} tokens per update: {made_of}"


def split_update(tokens: int, *, gpus: int, most: int, longest: int) -> Batches:
    """Divides an update into the smallest possible number of equal batches.

    The remainder of the division, which is less than the number of batches, is dropped.

    :param tokens: number of tokens in an update.
    :param most: maximum number of tokens on one GPU.
    :param longest: maximum length of a sentence, which must fit into a batch.
    """
    update_freq = -(-tokens // (gpus * most))
    batches = Batches(gpus=gpus, update_freq=update_freq, max_tokens=tokens // (gpus * update_freq))
    if batches.max_tokens < longest:
        raise ValueError(
            f"train.{TOKENS_PER_UPDATE} is {tokens:,}: on {gpus} GPU{'s' * (gpus > 1)} that is {batches.max_tokens:,} "
            f"tokens per batch, but a sentence may have {longest:,} "
            "(train.max-source-positions, train.max-target-positions): "
            + ("use fewer GPUs or lower these" if gpus > 1 else "increase train.max-tokens or lower these")
        )
    return batches


def plan_batches(train: Mapping[str, object], *, gpus: int) -> Batches | None:
    """The batches of an update for a recipe's flags of fairseq-train; None: the flags stay as they are.

    Without `tokens-per-update` an update has the number of tokens that the flags give on one GPU.

    :param gpus: number of GPUs, 0 for the CPU.
    """
    processes = max(gpus, 1)
    tokens, most = train.get(TOKENS_PER_UPDATE), train.get("max-tokens")
    if tokens is None:
        if processes == 1:
            return None
        update_freq = train.get("update-freq", 1)
        if not isinstance(most, int) or not isinstance(update_freq, int):
            names = f"train.{TOKENS_PER_UPDATE} and train.max-tokens"
            raise ValueError(f"{gpus} GPUs need {names}, so that an update keeps its size")
        tokens = most * update_freq
    assert isinstance(tokens, int) and isinstance(most, int), "TranslationSettings checks it"
    limits = (train.get(f"max-{side}-positions") for side in ("source", "target"))
    longest = max(limit if isinstance(limit, int) else _POSITIONS for limit in limits)
    return split_update(tokens, gpus=processes, most=most, longest=longest)
