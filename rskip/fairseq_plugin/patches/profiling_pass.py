"""Refuses to train a model that still needs its profiling pass (`rskip initialise`)."""

from __future__ import annotations

from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps
from rskip.connections import is_profiled


def refuse_unprofiled(module: Any) -> None:
    """Wraps `FairseqTask.begin_epoch`, to refuse a model without its profiling pass before the first epoch."""
    from rskip.fairseq_plugin.model import TrainedByFairseq


    @wraps(module.FairseqTask, "begin_epoch")
    def begin_epoch(original: Any, self: Any, epoch: int, model: Any) -> None:
        for stack, spec in model.connections.items() if isinstance(model, TrainedByFairseq) else ():
            if not is_profiled(getattr(model, stack)):
                raise UsageError(
                    f"{spec} starts from a profiling pass: run `rskip initialise --output start.pt` with these flags, "
                    "then add --finetune-from-model start.pt; or use wskip+ln, which starts at 1"
                )
        original(self, epoch, model)


PROFILING_PASS = Patch(
    name="profiling-pass",
    symptom="--connection admin without --finetune-from-model: training starts without its profiling pass",
    after={"fairseq.tasks.fairseq_task": refuse_unprofiled},
)
