"""Learning rates at every boundary of both schedules, and against PyTorch's own."""

from __future__ import annotations

import pytest
import torch

from rskip.vision.training import TrainingSettings
from rskip.vision.training.schedule import learning_rate


@pytest.mark.parametrize(
    ("iteration", "lr"),
    [
        (0, 0.01),
        (399, 0.01),
        (400, 0.1),
        (31_999, 0.1),
        (32_000, 0.01),
        (47_999, 0.01),
        (48_000, 0.001),
        (63_999, 0.001),
    ],
)
def test_the_papers_schedule(iteration, lr):
    assert learning_rate(TrainingSettings(), iteration) == lr


def test_steps_without_warm_up_are_pytorchs():
    settings = TrainingSettings(warmup_iterations=0, milestones=(3, 5, 6), lr=0.3, iterations=9)
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    theirs = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones=[3, 5, 6])
    for iteration in range(9):
        assert learning_rate(settings, iteration) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimiser.step()
        theirs.step()


def test_one_cycle_rises_and_falls_in_straight_lines():
    settings = TrainingSettings(
        schedule="one_cycle", iterations=100, lr=0.4, warmup_lr=0.1, warmup_share=0.3, final_lr=0.05
    )
    assert learning_rate(settings, 0) == 0.1
    assert learning_rate(settings, 15) == pytest.approx(0.25)
    assert learning_rate(settings, 30) == 0.4
    assert learning_rate(settings, 65) == pytest.approx(0.225)
    assert learning_rate(settings, 99) == pytest.approx(0.05 + 0.35 / 70)


def test_one_cycle_without_warm_up_begins_at_its_highest():
    settings = TrainingSettings(schedule="one_cycle", iterations=4, lr=0.4, warmup_share=0.0)
    assert [learning_rate(settings, iteration) for iteration in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.1])
