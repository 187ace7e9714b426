"""If a batch doesn't fit in memory, names it and the flags to lower, before fairseq skips the batch or ends."""

from __future__ import annotations

import logging
from typing import Any

from fairseq_compat.patch import Patch, wraps
from rskip.machine.torch_errors import out_of_memory

logger = logging.getLogger(__name__)


def advice(sample: dict[str, Any]) -> str:
    """The message with the batch's size, for a batch of a translation or captioning task."""
    inputs = sample["net_input"]
    sentences, length = inputs["prev_output_tokens"].shape
    source = f"{inputs['src_tokens'].size(1)} source and " if "src_tokens" in inputs else ""
    return (
        f"out of memory on a batch of {sentences} sentences of up to {source}{length} target tokens: "
        "lower --max-tokens or --batch-size, and raise --update-freq by as much"
    )


def name_the_batch(module: Any) -> None:
    """Wraps the tasks' forward and backward pass. It raises the error again: on a GPU fairseq skips the batch."""

    @wraps(module.FairseqTask, "train_step")
    def train_step(original: Any, self: Any, sample: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, sample, *args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error) and "prev_output_tokens" in sample.get("net_input", {}):
                logger.warning(advice(sample))
            raise


OUT_OF_MEMORY = Patch(
    name="out-of-memory",
    symptom="a batch doesn't fit in memory, and no message gives its size or the flags to lower",
    after={"fairseq.tasks.fairseq_task": name_the_batch},
)
