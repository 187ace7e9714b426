"""What models are compared on: a text, labelled images, or your own batches; each with a held-out part.

A batch of a text is a pair (inputs, targets) of tokens (B, T); of images, images (B, 3, S, S) and labels (B).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rskip.language_modeling.training import training_batches
from rskip.machine.ranks import Ranks
from rskip.settings.errors import SettingError
from rskip.tasks.training import iteration_seed
from rskip.vision.data import ImageSet, TrainingBatches, evaluation_batches

# of an iteration: this rank's part of the batch, the number of its examples, and that of all ranks
Draw = Callable[[int], tuple[Any, int, int]]
_HELD_OUT_TOKENS, _HELD_OUT_IMAGES = 4096, 256  # per batch
_HELD_OUT_MOST = 2**16  # tokens
_MASKED, _IGNORED = 0.15, -100  # Devlin et al. 2019; the target that PyTorch's cross-entropy leaves out


@dataclass(frozen=True, kw_only=True)
class Text:
    """Sequences of a text at random offsets.

    :param tokens: of train and valid. Shape of each: (N,).
    :param masked: the number of the token [MASK], for a masked language model; None: the next token is predicted.
    """

    tokens: Mapping[str, Tensor]
    vocab_size: int
    context: int
    batch_size: int
    sha256: str
    masked: int | None = None
    unit: str = "tokens"

    def __post_init__(self) -> None:
        if len(self.tokens["valid"]) <= self.context:
            problem = f"has {len(self.tokens['valid']):,} held-out tokens"
            expected = f"more than the context, {self.context:,}"
            raise SettingError("data", problem, expected=expected, advice="give a longer text or a smaller context")

    @property
    def sizes(self) -> dict[str, int]:
        return {"vocab_size": self.vocab_size, "context": self.context}

    @property
    def identity(self) -> dict[str, Any]:
        return {"text_sha256": self.sha256, "context": self.context, "batch_size": self.batch_size}

    def draw(self, seed: int, device: torch.device, ranks: Ranks) -> Draw:
        draw = training_batches(
            self.tokens["train"], batch_size=self.batch_size, context=self.context, seed=seed, device=device,
            ranks=ranks,
        )  # fmt: skip

        def batch(iteration: int) -> tuple[Any, int, int]:
            inputs, targets, count = draw(iteration)
            inputs, targets = inputs.contiguous(), targets.contiguous()  # models may use `view`, as nanoGPT does
            if self.masked is not None:
                inputs, targets = self._hidden(inputs, iteration_seed(seed, iteration, 1 + ranks.rank))
            return (inputs, targets), targets.numel(), count

        return batch

    def held_out(self, device: torch.device) -> Iterator[tuple[Any, int]]:
        sequences = self.tokens["valid"][:_HELD_OUT_MOST].unfold(0, self.context + 1, self.context)
        for number, rows in enumerate(sequences.split(max(1, _HELD_OUT_TOKENS // self.context))):
            inputs, targets = rows[:, :-1].contiguous().to(device), rows[:, 1:].contiguous().to(device)
            if self.masked is not None:
                inputs, targets = self._hidden(inputs, number)
            yield (inputs, targets), int((targets != _IGNORED).sum())

    def _hidden(self, tokens: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """BERT's inputs and targets: 15 % are predicted, of which 80 % are masked and 10 % are random tokens."""
        generator = torch.Generator().manual_seed(seed)
        draws = torch.rand(tokens.shape, generator=generator).to(tokens.device) / _MASKED
        others = torch.randint(self.vocab_size, tokens.shape, generator=generator).to(tokens.device)
        inputs = torch.where(draws < 0.8, torch.full_like(tokens, self.masked or 0), tokens)
        inputs = torch.where((draws >= 0.8) & (draws < 0.9), others, inputs)
        return inputs, torch.where(draws < 1, tokens, _IGNORED)


@dataclass(frozen=True, kw_only=True)
class Images:
    """Labelled images, cropped and flipped for training (`rskip.vision.data`)."""

    train: ImageSet
    valid: ImageSet
    size: int
    batch_size: int
    sha256: str
    unit: str = "images"

    @property
    def sizes(self) -> dict[str, int]:
        return {"classes": len(self.train.classes), "image_size": self.size}

    @property
    def identity(self) -> dict[str, Any]:
        return {"images_sha256": self.sha256, "image_size": self.size, "batch_size": self.batch_size}

    def draw(self, seed: int, device: torch.device, ranks: Ranks) -> Draw:
        batches = TrainingBatches(self.train, batch_size=self.batch_size, seed=seed, device=device, ranks=ranks)

        def batch(iteration: int) -> tuple[Any, int, int]:
            images, labels, count = batches.batch(iteration)
            return (images, labels), len(labels), count

        return batch

    def held_out(self, device: torch.device) -> Iterator[tuple[Any, int]]:
        for images, labels in evaluation_batches(self.valid, batch_size=_HELD_OUT_IMAGES, device=device):
            yield (images, labels), len(labels)


@dataclass(frozen=True, kw_only=True)
class OwnBatches:
    """Your own batches, in a new order in each epoch. Ranks take turns in the order."""

    train: Sequence[Any]
    valid: Sequence[Any]
    unit: str = "batches"
    sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, batches in (("data", self.train), ("valid", self.valid)):
            if not len(batches):
                advice = "give more batches; without `valid` every tenth is held out"
                raise SettingError(name, "has no batch", expected="one or more", advice=advice)

    @classmethod
    def of(cls, data: Any, valid: Any = None) -> OwnBatches:
        """The batches of iterables. One that is no sequence is read once, and kept in memory.

        :param valid: the held-out batches; None: every tenth of `data`.
        """
        if isinstance(data, Dataset):
            advice = "give torch.utils.data.DataLoader(data, batch_size=...)"
            raise SettingError("data", "is a Dataset of examples", expected="batches", advice=advice)
        train = data if _is_sequence(data) else list(data)
        if valid is None:
            places = range(len(train))
            kept = [train[place] for place in places if place % 10 != 9]
            return cls(train=kept, valid=[train[place] for place in places if place % 10 == 9])
        return cls(train=train, valid=valid if _is_sequence(valid) else list(valid))

    @property
    def identity(self) -> dict[str, Any]:
        """The number of batches, and a checksum of the first and the last one."""
        ends = [tensor for batch in (self.train[0], self.train[-1]) for tensor in tensors(batch)]
        values = (each.detach().cpu().flatten().view(torch.uint8).numpy().tobytes() for each in ends)
        digest = hashlib.sha256(b"".join(values))
        return {"batches": len(self.train), "held_out": len(self.valid), "batches_sha256": digest.hexdigest()}

    def draw(self, seed: int, device: torch.device, ranks: Ranks) -> Draw:
        @lru_cache(maxsize=2)  # ranks may be on both sides of an epoch's end
        def order(epoch: int) -> list[int]:
            generator = torch.Generator().manual_seed(iteration_seed(seed, epoch))
            drawn: list[int] = torch.randperm(len(self.train), generator=generator).tolist()
            return drawn

        def chosen(place: int) -> Any:
            epoch, place = divmod(place, len(self.train))
            return self.train[order(epoch)[place]]

        def batch(iteration: int) -> tuple[Any, int, int]:
            of_ranks = [chosen(iteration * ranks.count + rank) for rank in range(ranks.count)]
            own = of_ranks[ranks.rank]
            return moved(own, device), examples(own), sum(map(examples, of_ranks))

        return batch

    def held_out(self, device: torch.device) -> Iterator[tuple[Any, int]]:
        return ((moved(batch, device), examples(batch)) for batch in self.valid)


# `sizes` are what a model must know; `unit` is what a batch counts, `identity` what determines the batches, as plain
# values. `draw` returns the training batches, which depend on seed and iteration only; `held_out` yields the held-out
# batches with the number of their examples.
Data = Text | Images | OwnBatches


def _is_sequence(data: Any) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping)


def tensors(batch: Any) -> list[Tensor]:
    """The tensors of a batch, in order."""
    if isinstance(batch, Tensor):
        return [batch]
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def examples(batch: Any) -> int:
    """The number of examples: the first dimension of the first tensor that has one."""
    return next((len(each) for each in tensors(batch) if each.dim()), 1)


def moved(batch: Any, device: torch.device) -> Any:
    """The batch, with its tensors on the device."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: moved(each, device) for name, each in batch.items()}
    if isinstance(batch, (list, tuple)):
        return tuple(moved(each, device) for each in batch)
    return batch
