"""Sums over training images, kept on the device so that no iteration waits for it."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.machine.ranks import Ranks

_NEVER = torch.iinfo(torch.int64).max


class Meter:
    """Loss and error of the training images since the last point of the curve.

    images: how many, over all ranks. N is the number of images of this rank's part of a batch.
    """

    def __init__(self, device: torch.device, ranks: Ranks) -> None:
        self._ranks = ranks
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)  # loss, wrong
        self._first_bad = torch.tensor(_NEVER, device=device)
        self.images = 0

    def add(self, iteration: int, logits: Tensor, labels: Tensor, loss: Tensor, images: int) -> None:
        """A batch.

        :param logits: Shape: (N, classes).
        :param labels: Shape: (N,).
        :param loss: the sum of this rank's losses.
        :param images: of the batch, over all ranks.
        """
        loss = loss.detach()
        wrong = (logits.detach().argmax(dim=1) != labels).sum()
        self._sums += torch.stack([loss.double(), wrong.double()])
        self._first_bad = torch.minimum(self._first_bad, torch.where(loss.isfinite(), _NEVER, iteration))
        self.images += images

    def first_bad(self) -> int | None:
        """The first iteration whose loss was not finite, on any rank."""
        first = int(self._ranks.min(self._first_bad))
        return None if first == _NEVER else first

    def means(self) -> tuple[float, float]:
        """Loss and error in %, over all ranks."""
        loss, wrong = self._ranks.sum(self._sums).tolist()
        return loss / self.images, 100 * wrong / self.images

    def reset(self) -> None:
        """Begins anew."""
        self._sums.zero_()
        self.images = 0

    def state(self) -> dict[str, float]:
        """Everything as plain numbers, over all ranks."""
        loss, wrong = self._ranks.sum(self._sums).tolist()
        return {"loss": loss, "wrong": wrong, "images": self.images}

    def load(self, state: dict[str, float]) -> None:
        """What `state` gave: the first rank has it, the others add nothing."""
        share = [state["loss"], state["wrong"]] if self._ranks.first else [0.0, 0.0]
        self._sums.copy_(torch.tensor(share, dtype=torch.float64))
        self.images = int(state["images"])
