"""The learning rate of every iteration."""

from __future__ import annotations

from rskip.vision.training.settings import TrainingSettings


def learning_rate(settings: TrainingSettings, iteration: int) -> float:
    """The learning rate that an iteration is done with.

    step (He et al. 2016b, section 4): warmup_lr in the first `warmup_iterations`, then lr, divided by 10 at each of the
    milestones.
    one_cycle: in a straight line from warmup_lr at iteration 0 to lr, over `warmup_share` of all iterations, then in a
    straight line down to final_lr, which the iteration after the last one would have.

    :param settings: with `iterations`, not `epochs` (see `TrainingSettings.in_iterations`).
    :param iteration: counted from 0.
    """
    assert settings.iterations is not None
    if settings.schedule == "step":
        if iteration < settings.warmup_iterations:
            return settings.warmup_lr
        return settings.lr / 10 ** sum(iteration >= milestone for milestone in settings.milestones)
    peak = settings.warmup_share * settings.iterations
    if iteration < peak:
        return settings.warmup_lr + (settings.lr - settings.warmup_lr) * iteration / peak
    left = (settings.iterations - iteration) / (settings.iterations - peak)
    return settings.final_lr + (settings.lr - settings.final_lr) * left
