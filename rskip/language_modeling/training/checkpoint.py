"""Describes checkpoint.pt, from which the training of a language model resumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

from rskip.language_modeling.training.curve import CurvePoint
from rskip.settings.kinds import Whole
from rskip.tasks.loop_folder import LoopCheckpoint, Session


class _Moments(TypedDict):
    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor


class _Group(TypedDict):
    params: list[int]


class Optimiser(TypedDict):
    """The state dict of AdamW. Only the keys that rskip reads are declared."""

    state: dict[int, _Moments]
    param_groups: list[_Group]


@dataclass(frozen=True, kw_only=True)
class TrainingCheckpoint(LoopCheckpoint):
    """A training's state after an iteration.

    Random numbers need no state: those of an iteration depend on seed and iteration only.

    text: checksum of the data.
    loss, tokens, seconds: sums since the last point of the curve: loss of the training tokens, their number, and the
    time without evaluations.
    sessions: one entry per session: "from" (iteration), "device", "torch" (version), "seconds".
    """

    text: str
    optimiser: Optimiser
    loss: float
    tokens: Whole
    seconds: float
    curve: list[CurvePoint]
    sessions: list[Session]
