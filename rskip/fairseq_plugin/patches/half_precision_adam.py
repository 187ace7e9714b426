"""Copies gradients and parameters in few kernels with `--optimizer rskip_adam` and --fp16 or --bf16."""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch


def take_our_wrapper(module: Any) -> None:
    """Wraps `FP16Optimizer.build_optimizer`, so that the trainer uses our wrapper around our Adam."""
    from rskip.fairseq_plugin import adam

    wrapper = module.FP16Optimizer
    original = wrapper.build_optimizer.__func__

    def build_optimizer(cls: type, cfg: Any, params: Any, **kwargs: Any) -> Any:
        ours = cls is wrapper and getattr(cfg.optimizer, "_name", None) == adam.NAME
        return original(adam.FP16Optimizer if ours else cls, cfg, params, **kwargs)

    wrapper.build_optimizer = classmethod(build_optimizer)


HALF_PRECISION_ADAM = Patch(
    name="half-precision-adam",
    symptom="--optimizer rskip_adam with --fp16 or --bf16: one kernel per tensor to copy gradients and parameters",
    after={"fairseq.optim.fp16_optimizer": take_our_wrapper},
)
